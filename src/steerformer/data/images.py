"""Images as numbers from 0 to 1, in the channels that are wanted."""

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steerformer.data.base import DataError

_LUMINANCE = (0.299, 0.587, 0.114)


def read_image(path: Path, channels: int) -> Tensor:
    """The image (channels, height, width).

    Channels that are there are taken as they are. Else transparent images are laid on black, grey becomes three equal
    channels, and colour its luminance; other changes would be guesses and are refused.
    """
    mode, pixels = _pixels(path)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    found = pixels.shape[2]
    x = torch.from_numpy(_from_0_to_1(pixels, mode, path)).movedim(2, 0)
    if found != channels and mode in ("LA", "RGBA"):
        x = x[:-1] * x[-1:]
    if len(x) == 1 and channels == 3:
        x = x.expand(3, -1, -1)
    elif mode in ("RGB", "RGBA") and len(x) == 3 and channels == 1:
        x = (x * x.new_tensor(_LUMINANCE)[:, None, None]).sum(dim=0, keepdim=True)
    if len(x) != channels:
        raise DataError(f"{path} has {found} channels ({mode}), expected {channels}; set channels or convert it.")
    return x.contiguous()


def _pixels(path: Path) -> tuple[str, np.ndarray]:
    """Mode and pixels, upright as the camera was held; palettes are looked up."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata: what matters is whether the pixels can be read
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened)
                if image.mode in ("P", "PA"):
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
