"""The allocator keeps freed memory."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from steerformer.training.allocator import keep_freed_memory

def kept_share():
    before = pages()
    torch.ones(50_000_000)
    return (pages() - before) * 4096 / 200e6

def pages():
    return int(open("/proc/self/statm").read().split()[1])

print(kept_share(), keep_freed_memory(), kept_share())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the option")
def test_freed_memory_is_kept():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, was_set, after = done.stdout.split()
    assert float(before) < 0.1 and was_set == "True" and float(after) > 0.9
