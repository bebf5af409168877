"""Memory of this process: how much it has, how much it takes at its peak, and how much a user allows it."""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_MACHINE = Path("/proc/meminfo")
_ALLOWED, _TAKEN = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")  # of a container
_KINDS = Path("/sys/fs/cgroup/memory.stat")  # what takes it
_SHARE = 0.8  # of the free memory that may be taken: others may need some, too
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_forgotten = 0  # the highest peak before the system's count was last started anew


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it.

    >>> parse_bytes("2G"), parse_bytes("1.5 GB"), parse_bytes("800m")
    (2147483648, 1610612736, 838860800)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not found or not float(found[1]):
        raise ValueError(f"an amount of memory is a number and K, M, G or T, such as 2G or 800M, got {text!r}.")
    return int(float(found[1]) * _UNITS[found[2]])


def as_text(count: int | float) -> str:
    """A number of bytes for people.

    >>> as_text(3 * 2**30), as_text(300 * 2**20)
    ('3.0G', '300M')
    """
    return f"{count / 2**30:.1f}G" if count >= 2**30 else f"{-(-count // 2**20):.0f}M"


def free_memory() -> int | None:
    """Bytes that new work can take without pushing anything out; ``None`` where the system does not tell.

    In a container it is what is left of its limit, if that is less than what the machine has.
    """
    known = [count for count in (_read(_MACHINE, "MemAvailable"), _left_in_container()) if count is not None]
    return min(known, default=None)


def budget() -> int | None:
    """Bytes that this process may have in all where nobody set a limit; ``None`` where the system does not tell."""
    free = free_memory()
    return None if free is None else resident() + int(_SHARE * free)


def resident() -> int:
    """Bytes of memory that this process has now, and not merely kept; 0 where the system does not tell."""
    _give_back()
    return _status("VmRSS") or 0


def highest() -> int | None:
    """Most bytes of memory that this process ever had; ``None`` where the system does not tell."""
    peak = _status("VmHWM")
    return None if peak is None else max(peak, _forgotten)


def peak_of(work: Callable[[], object]) -> int | None:
    """Bytes that the process has at most while ``work`` runs, beyond what it has before; ``None`` if not known.

    It is the system's own count of pages, so scratch space of libraries counts as well. Only Linux lets a process start
    that count anew.
    """
    global _forgotten
    before = resident()
    _forgotten = highest() or 0
    try:
        _RESET.write_text("5")
    except OSError:
        work()
        return None
    work()
    peak = _status("VmHWM")
    return None if peak is None else max(0, peak - before)


def _give_back() -> None:
    """Return to the system what was freed: else new work would seem to take nothing where it is taken from that."""
    with suppress(OSError, AttributeError, TypeError):  # other C libraries than that of Linux do not have it
        ctypes.CDLL(None).malloc_trim(0)


def _left_in_container() -> int | None:
    """Of its limit (cgroup v2), with what only keeps files at hand and is given up when memory is needed."""
    try:
        kept = re.findall(r"^(?:in)?active_file (\d+)$", _KINDS.read_text(), re.MULTILINE)
        return max(0, int(_ALLOWED.read_text()) - int(_TAKEN.read_text()) + sum(map(int, kept)))
    except (OSError, ValueError):  # there is no container, or it is without a limit, which reads "max"
        return None


def _status(name: str) -> int | None:
    return _read(_STATUS, name)


def _read(file: Path, name: str) -> int | None:
    try:
        found = re.search(rf"{name}:\s*(\d+) kB", file.read_text())
        return int(found[1]) * 2**10 if found else None
    except OSError:
        return None
