"""The C library's allocator: training on CPUs allocates and frees the same large blocks again and again."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Make the allocator reuse freed blocks instead of returning them to the system: about 30 % less time.

    It affects the whole process, so commands call it, not the library. Returns whether it was set: only glibc has the
    option.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 200 * 2**20))
    return all([mallopt(option, value) for option, value in settings])
