"""Description of the machine that benchmarks ran on."""

import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch


def describe(root: Path) -> dict[str, Any]:
    """Processor, cores, threads, versions, date, and the commit, if any."""
    found = {
        "processor": processor_name(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    commit = _commit(root)
    return found | ({"commit": commit} if commit else {})


def sentence(machine: dict[str, Any]) -> str:
    """The description in one line, for below a table."""
    commit = f", commit {machine['commit']}" if "commit" in machine else ""
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"
    return (
        f"Measured on {machine['processor']}, {machine['cores']} cores, {threads}, "
        f"torch {machine['torch']}, {machine['date']}{commit}."
    )


def processor_name() -> str:
    """Model of the processor; on Linux from /proc/cpuinfo, which Python's platform module does not read."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return named[1].strip() if named else platform.processor() or platform.machine()


def _commit(root: Path) -> str | None:
    """Short hash of the commit, marked if files differ from it; ``None`` outside a repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
