"""Files that are there whole or not at all."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: bytes | str) -> None:
    """Put ``content`` at ``path`` in one go: whoever reads finds the old file or the new one, never half of it.

    If writing fails, by a full disk or a break, ``path`` is as it was and nothing else is left behind; the ``OSError``
    names the file.

    >>> folder = Path(tempfile.mkdtemp())
    >>> write_whole(folder / "a.txt", "all of it")
    >>> [file.name for file in folder.iterdir()]
    ['a.txt']
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        _write(path, data)
    except OSError as error:  # of a full disk, the system does not say which file it was
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, values: Any) -> None:
    """``values`` as JSON that people can read, too."""
    write_whole(path, json.dumps(values, indent=1) + "\n")


def _write(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
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
