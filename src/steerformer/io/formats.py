"""File formats: which suffixes are images and which are volumes."""

from pathlib import Path

from steerformer.io.errors import DataError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif", ".webp")
NIFTI_SUFFIXES = (".nii", ".nii.gz")
VOLUME_SUFFIXES = (*NIFTI_SUFFIXES, ".npy")


def file_kind(path: Path) -> str | None:
    """``"image"``, ``"volume"``, or ``None`` for any other file, by its suffix."""
    name = path.name.lower()
    if name.startswith("."):
        return None
    return "image" if name.endswith(IMAGE_SUFFIXES) else "volume" if name.endswith(VOLUME_SUFFIXES) else None


def require_kind(path: Path) -> str:
    """``"image"`` or ``"volume"``; a :class:`DataError` if the file is neither, or does not exist."""
    kind = file_kind(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the files in it, such as {path}/*.nii.gz.")
    if kind is None:
        raise DataError(
            f"{path} is neither an image ({', '.join(IMAGE_SUFFIXES)}) nor a volume ({', '.join(VOLUME_SUFFIXES)})."
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    return kind


def split_suffix(name: str) -> tuple[str, str]:
    """Stem and suffix of a file name; ``.nii.gz`` is one suffix.

    >>> split_suffix("case_01.nii.gz"), split_suffix("photo.JPG")
    (('case_01', '.nii.gz'), ('photo', '.JPG'))
    """
    length = max((len(end) for end in (*IMAGE_SUFFIXES, *VOLUME_SUFFIXES) if name.lower().endswith(end)), default=0)
    return (name[:-length], name[-length:]) if length else (name, "")
