"""How the C library keeps memory: training on CPUs takes and frees the same large blocks again and again."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Reuse freed blocks rather than return them to the system, which hands them out zeroed: about 30 % less time.

    It holds for the whole process, so it is for commands to call, not for libraries. Returns whether it was done: only
    glibc, that is most Linux, has the switch.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 200 * 2**20))
    return all([mallopt(option, value) for option, value in settings])
