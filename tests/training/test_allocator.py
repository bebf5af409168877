"""The allocator keeps freed blocks, except large ones."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from steerformer.training.allocator import keep_freed_memory

def kept_share(megabytes):
    before = pages()
    torch.ones(megabytes * 250_000)
    return (pages() - before) * 4096 / (megabytes * 1e6)

def pages():
    return int(open("/proc/self/statm").read().split()[1])

torch.ones(1)
print(kept_share(30), keep_freed_memory(), kept_share(30), kept_share(600))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the option")
def test_freed_memory_is_kept_up_to_32_megabytes():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, was_set, after, large = done.stdout.split()
    assert float(before) < 0.1 and was_set == "True" and float(after) > 0.9 and float(large) < 0.1
