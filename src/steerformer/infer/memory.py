"""Memory of this process: current, peak and available, and limits that users set."""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_MACHINE = Path("/proc/meminfo")
_ALLOWED, _TAKEN = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")  # container limit and use
_KINDS = Path("/sys/fs/cgroup/memory.stat")  # usage by kind of memory
_SHARE = 0.8  # of the available memory that may be used
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_earlier_peak = 0  # the highest peak before the system's counter was last reset


def parse_bytes(text: str) -> int:
    """Parse a number of bytes, such as ``2G`` or ``800M``.

    >>> parse_bytes("2G"), parse_bytes("1.5 GB"), parse_bytes("800m")
    (2147483648, 1610612736, 838860800)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not found or not float(found[1]):
        raise ValueError(f"a memory size is a number and K, M, G or T, such as 2G or 800M, got {text!r}.")
    return int(float(found[1]) * _UNITS[found[2]])


def format_bytes(count: int | float) -> str:
    """Format a number of bytes.

    >>> format_bytes(3 * 2**30), format_bytes(300 * 2**20)
    ('3.0G', '300M')
    """
    return f"{count / 2**30:.1f}G" if count >= 2**30 else f"{-(-count // 2**20):.0f}M"


def free_memory() -> int | None:
    """Bytes available to new work without swapping; ``None`` if the system does not report it.

    In a container, at most what remains of its limit.
    """
    known = [count for count in (_read(_MACHINE, "MemAvailable"), _left_in_container()) if count is not None]
    return min(known, default=None)


def memory_budget() -> int | None:
    """Default limit for the memory of this process, in bytes; ``None`` if the system does not report it."""
    free = free_memory()
    return None if free is None else resident() + int(_SHARE * free)


def resident() -> int:
    """Resident memory of this process in bytes, without freed memory; 0 if the system does not report it."""
    _release_freed()
    return _status("VmRSS") or 0


def peak_memory() -> int | None:
    """Peak memory of this process in bytes; ``None`` if the system does not report it."""
    peak = _status("VmHWM")
    return None if peak is None else max(peak, _earlier_peak)


def measure_peak(work: Callable[[], object]) -> int | None:
    """Peak memory in bytes while ``work`` runs, beyond the memory before; ``None`` if unknown.

    The system counts pages, so scratch space of libraries is included. Only Linux lets a process reset that counter.
    """
    global _earlier_peak
    before = resident()
    _earlier_peak = peak_memory() or 0
    try:
        _RESET.write_text("5")
    except OSError:
        work()
        return None
    work()
    peak = _status("VmHWM")
    return None if peak is None else max(0, peak - before)


def _release_freed() -> None:
    """Return freed memory to the system: otherwise work that reuses it would seem to take none."""
    with suppress(OSError, AttributeError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _left_in_container() -> int | None:
    """What remains of the container's limit (cgroup v2); the page cache counts as available."""
    try:
        page_cache = re.findall(r"^(?:in)?active_file (\d+)$", _KINDS.read_text(), re.MULTILINE)
        return max(0, int(_ALLOWED.read_text()) - int(_TAKEN.read_text()) + sum(map(int, page_cache)))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None


def _status(name: str) -> int | None:
    return _read(_STATUS, name)


def _read(file: Path, name: str) -> int | None:
    try:
        found = re.search(rf"{name}:\s*(\d+) kB", file.read_text())
        return int(found[1]) * 2**10 if found else None
    except OSError:
        return None
