"""Description of the machine that benchmarks ran on."""

import os
import platform
import re
import subprocess
from collections.abc import Callable
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


def with_load(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The measured row, with the load average before it and the share of the CPU time that others used during it."""
    average, before = os.getloadavg()[0], _cpu_times()
    row = measure()
    after = _cpu_times()
    found = {"load_average": round(average, 2)}
    if before and after:
        total, busy, own = (later - earlier for later, earlier in zip(after, before, strict=True))
        found["others_share"] = round(max(0.0, busy - own) / max(total, 1e-9), 3)
    return row | found


def processor_name() -> str:
    """Model of the processor; on Linux from /proc/cpuinfo, which Python's platform module does not read."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return named[1].strip() if named else platform.processor() or platform.machine()


def _cpu_times() -> tuple[float, float, float] | None:
    """Seconds of all cores, busy or not; busy ones; and those of this process and its finished children."""
    statistics = Path("/proc/stat")
    if not statistics.exists():
        return None
    all_cores = statistics.read_text().splitlines()[0].split()
    user, nice, system, idle, waiting, *interrupts = map(int, all_cores[1:9])
    busy = user + nice + system + sum(interrupts)
    ticks = os.sysconf("SC_CLK_TCK")
    return (busy + idle + waiting) / ticks, busy / ticks, sum(os.times()[:4])


def _commit(root: Path) -> str | None:
    """Short hash of the commit, marked if files differ from it; ``None`` outside a repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None
