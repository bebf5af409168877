"""Archives: arrays in .npz files."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from steerformer.io.errors import DataError


def find_npz(root: Path, *, recursive: bool = True) -> Path | None:
    """The .npz file in a folder, if there is one; a :class:`DataError` if there are several."""
    found = sorted(root.rglob("*.npz") if recursive else root.glob("*.npz"))
    if len(found) > 1:
        names = f"{found[0].name}, {found[1].name}, ..."
        raise DataError(f"{root} holds several .npz files ({names}); set root to one of them.")
    return found[0] if found else None


def array_names(path: Path) -> set[str]:
    """Names of the arrays in an .npz file."""
    with _opened(path) as archive:
        return set(archive.files)


def read_npz(path: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Arrays ``keys`` of an .npz file; a :class:`DataError` if one is missing. Pickled objects are rejected."""
    with _opened(path) as archive:
        missing = [key for key in keys if key not in archive]
        if missing:
            raise DataError(f"{path} lacks {', '.join(missing)}; it holds {', '.join(archive.files)}.")
        return {key: archive[key] for key in keys}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise DataError(f"{path} is not an .npz file, or is truncated.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                yield archive
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # a damaged header can raise any kind of error; the cause stays attached
        raise DataError(f"{path} is damaged, or holds more than plain arrays of numbers.") from error
