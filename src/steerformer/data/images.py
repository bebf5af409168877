"""Images as numbers from 0 to 1, in the channels that are wanted."""

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data.base import DataError

_LUMINANCE = (0.299, 0.587, 0.114)


def read_image(path: Path, channels: int | None) -> Tensor:
    """The image (channels, height, width); ``None`` for gray or color as it is, transparent ones laid on black.

    Channels that are there are taken as they are. Else transparent images are laid on black, gray becomes three equal
    channels, and color its luminance; other changes would be guesses and are refused.
    """
    mode, pixels = _pixels(path)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    x = torch.from_numpy(_from_0_to_1(pixels, mode, path)).movedim(2, 0)
    return in_channels(x, mode, channels, path)


def in_channels(x: Tensor, mode: str, channels: int | None, path: Path) -> Tensor:
    """An image of Pillow's ``mode`` in the channels that are wanted, as :func:`read_image` has it."""
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


def read_numbers(path: Path) -> np.ndarray:
    """The numbers (height, width) that an image holds: those of its palette, or of channels that are all alike."""
    mode, pixels = _pixels(path, palettes=False)
    if mode in ("LA", "RGBA"):
        pixels = pixels[..., :-1]
    if pixels.ndim == 3:
        if (pixels != pixels[..., :1]).any():
            raise DataError(f"{path} is in color; a mask holds one number a pixel, gray or of a palette.")
        pixels = pixels[..., 0]
    return pixels


def _pixels(path: Path, *, palettes: bool = True) -> tuple[str, np.ndarray]:
    """Mode and pixels, upright as the camera was held; palettes are looked up if wanted."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata: what matters is whether the pixels can be read
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened)
                if palettes and image.mode in ("P", "PA"):
                    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
                return image.mode, np.array(image)
    except PermissionError as error:
        raise DataError(f"cannot read {path}: {error.strerror}.") from None
    except Exception:  # each format has its own errors for damage
        raise DataError(f"{path} cannot be read as an image: it is cut short, damaged or of another kind.") from None


def _from_0_to_1(pixels: np.ndarray, mode: str, path: Path) -> np.ndarray:
    """8 and 16 bits become 0 to 1; fractions should be that already."""
    kind = pixels.dtype.kind
    most = 1.0 if kind in "bf" else 255.0 if pixels.dtype.itemsize == 1 else 65535.0
    low, high = pixels.min(), pixels.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError(f"{path} holds NaN or infinity.")
    if low < 0 or high > most:
        raise DataError(
            f"{path} holds values from {low:g} to {high:g} ({mode}), expected 0 to 65535, or fractions from 0 to 1."
        )
    return pixels.astype(np.float32) / np.float32(most)
