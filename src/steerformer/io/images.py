"""Images: PNG, JPEG and others as tensors with values from 0 to 1."""

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.io.errors import DataError

_LUMINANCE = (0.299, 0.587, 0.114)


def read_image(path: Path, channels: int | None) -> Tensor:
    """An image (channels, height, width), values from 0 to 1; ``channels=None`` keeps the channels of the file.

    See :func:`convert_channels` for how the number of channels is converted.
    """
    mode, pixels = _pixels(path)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    x = torch.from_numpy(scale_to_unit_range(pixels, mode, path)).movedim(2, 0)
    return convert_channels(x, mode, channels, path)


def scale_to_unit_range(pixels: np.ndarray, mode: str, path: Path | str) -> np.ndarray:
    """Scale 8 and 16 bits to 0 to 1; floating-point values must be from 0 to 1 already.

    ``mode`` and ``path`` describe the pixels in error messages.
    """
    kind = pixels.dtype.kind
    largest = 1.0 if kind in "bf" else 255.0 if pixels.dtype.itemsize == 1 else 65535.0
    low, high = pixels.min(), pixels.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError(f"{path} holds NaN or infinity.")
    if low < 0 or high > largest:
        raise DataError(
            f"{path} holds values from {low:g} to {high:g} ({mode}), expected 0 to 65535, or fractions from 0 to 1."
        )
    return pixels.astype(np.float32) / np.float32(largest)


def convert_channels(x: Tensor, mode: str, channels: int | None, path: Path) -> Tensor:
    """Convert an image of Pillow's ``mode`` to ``channels`` channels.

    Transparent images are composited on black, gray becomes three equal channels, color becomes luminance; any other
    conversion would be a guess and is rejected.
    """
    found = len(x)
    if found != channels and mode in ("LA", "RGBA"):
        x = x[:-1] * x[-1:]
    if len(x) == 1 and channels == 3:
        x = x.expand(3, -1, -1)
    elif mode in ("RGB", "RGBA") and len(x) == 3 and channels == 1:
        x = (x * x.new_tensor(_LUMINANCE)[:, None, None]).sum(dim=0, keepdim=True)
    if channels is not None and len(x) != channels:
        raise DataError(f"{path} has {found} channels ({mode}), expected {channels}; set channels or convert it.")
    return x.contiguous()


def read_label_image(path: Path) -> np.ndarray:
    """The labels (height, width) of an image: palette indices, or the value that all color channels share."""
    mode, pixels = _pixels(path, palettes=False)
    if mode in ("LA", "RGBA"):
        pixels = pixels[..., :-1]
    if pixels.ndim == 3:
        if (pixels != pixels[..., :1]).any():
            raise DataError(f"{path} is in color; a mask holds one number per pixel, gray or palette indices.")
        pixels = pixels[..., 0]
    return pixels


def _pixels(path: Path, *, palettes: bool = True) -> tuple[str, np.ndarray]:
    """Pillow's mode and the pixels in EXIF orientation; with ``palettes``, colors instead of palette indices."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata does not matter if the pixels can be read
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened)
                if palettes and image.mode in ("P", "PA"):
                    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
                return image.mode, np.array(image)
    except PermissionError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except Exception as error:  # every format raises its own errors; the cause stays attached
        raise DataError(f"{path} cannot be read as an image: it is truncated, damaged or of another format.") from error
