"""Small files of a run, whole or not at all, and errors that name them."""

import json
from pathlib import Path
from typing import Any

from steerformer.files import written_whole


def write_whole(path: Path, content: bytes | str) -> None:
    """Put ``content`` at ``path`` in one go: whoever reads finds the old file or the new one, never half of it."""
    data = content.encode() if isinstance(content, str) else content
    try:
        with written_whole(path) as partial:
            partial.write_bytes(data)
    except OSError as error:  # of a full disk, the system does not say which file it was
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, values: Any) -> None:
    """``values`` as JSON that people can read, too."""
    write_whole(path, json.dumps(values, indent=1) + "\n")
