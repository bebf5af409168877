"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path`` to write into; it takes the place of ``path`` once all of it is on disk.

    If writing fails, by an error, a full disk or a break, ``path`` is as it was and the temporary file is gone.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder / "a.txt") as partial:
    ...     _ = partial.write_text("all of it")
    >>> [file.name for file in folder.iterdir()]
    ['a.txt']
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(descriptor)
    partial = Path(name)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())  # mkstemp lets nobody else read
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """What new files are denied; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
