"""The C library's allocator: training on CPUs allocates and frees the same large blocks again and again."""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGE = 32 * 2**20  # bytes, the largest threshold that glibc accepts


def keep_freed_memory() -> bool:
    """Make the allocator reuse freed blocks instead of returning them to the system: about 10 % less time.

    Blocks above 32 MB still go back to the system; kept, they would fragment the memory of steps on whole volumes.
    It affects the whole process, so commands call it, not the library. Returns whether it was set: only glibc has the
    option.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 200 * 2**20))
    return all([mallopt(option, value) for option, value in settings])
