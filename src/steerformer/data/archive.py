"""Arrays out of .npz files."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from steerformer.data.base import DataError


def read_npz(path: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Arrays ``keys`` of an .npz file, all of them there; nothing in it is executed."""
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise DataError(f"{path} is no .npz file, or is cut short.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                missing = [key for key in keys if key not in archive]
                if missing:
                    raise DataError(f"{path} lacks {', '.join(missing)}; it holds {', '.join(archive.files)}.")
                return {key: archive[key] for key in keys}
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError):
        raise DataError(f"{path} is damaged, or holds more than plain arrays of numbers.") from None
