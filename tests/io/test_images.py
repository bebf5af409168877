"""Images: values from 0 to 1, conversion of channels, and errors that name the file."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from steerformer.data import DataError
from steerformer.io.images import read_image, read_label_image


def write_image(path, shape=(16, 16), *, seed=0, mode=None):
    pixels = np.random.default_rng(seed).integers(0, 256, size=shape).astype(np.uint8)
    Image.fromarray(pixels).convert(mode).save(path) if mode else Image.fromarray(pixels).save(path)
    return pixels


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "PNG"])
def test_lossless_images_are_read_exactly(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    gray = write_image(path)
    assert_close(read_image(path, 1), torch.from_numpy(gray)[None] / 255)
    color = write_image(path, (16, 16, 3))
    assert_close(read_image(path, 3), torch.from_numpy(color).movedim(2, 0) / 255)


def test_jpeg_palette_16_bit_and_1_bit_images_are_read(tmp_path):
    ramp = np.linspace(0, 255, 256).reshape(16, 16).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "a.jpg", quality=100)
    assert_close(read_image(tmp_path / "a.jpg", 1)[0], torch.from_numpy(ramp) / 255, rtol=0, atol=0.02)
    write_image(tmp_path / "p.png", (16, 16, 3), mode="P")
    assert read_image(tmp_path / "p.png", 3).shape == (3, 16, 16)
    deep = (np.arange(256).reshape(16, 16) * 257).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert_close(read_image(tmp_path / "deep.png", 1)[0], torch.from_numpy(deep / 65535).float())
    Image.fromarray(ramp > 100).save(tmp_path / "bits.png")
    assert read_image(tmp_path / "bits.png", 1).unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "gif", "webp"])
def test_truncated_images_are_named(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    write_image(path, (64, 64, 3))
    for keep in (0.7, 0.02, 0):
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])
        with pytest.raises(DataError, match=rf"cut\.{suffix} cannot be read as an image"):
            read_image(path, 3)


@pytest.mark.parametrize(
    "mode, found, channels", [("RGB", 3, 5), ("RGB", 3, 4), ("L", 1, 2), ("RGBA", 4, 2), ("CMYK", 4, 3)]
)
def test_ambiguous_channel_conversions_are_rejected(tmp_path, mode, found, channels):
    write_image(tmp_path / "a.tif", mode=mode)
    with pytest.raises(DataError, match=rf"a\.tif has {found} channels \({mode}\), expected {channels}"):
        read_image(tmp_path / "a.tif", channels)


def test_floating_point_images_are_unchanged(tmp_path):
    values = np.random.default_rng(0).uniform(size=(16, 16)).astype(np.float32)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert_close(read_image(tmp_path / "a.tif", 1)[0], torch.from_numpy(values))


@pytest.mark.parametrize("most, kind", [(1.5, np.float32), (-0.5, np.float32), (70000, np.int32), (-1, np.int32)])
def test_values_out_of_range_are_rejected(tmp_path, most, kind):
    Image.fromarray(np.full((8, 8), most, kind)).save(tmp_path / "a.tif")
    with pytest.raises(
        DataError, match=rf"a\.tif holds values from {most} to {most} .*expected 0 to 65535, or fractions"
    ):
        read_image(tmp_path / "a.tif", 1)
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif holds NaN or infinity"):
        read_image(tmp_path / "a.tif", 1)


def test_16_bit_values_in_32_bit_files_are_scaled(tmp_path):
    Image.fromarray(np.full((8, 8), 65535, np.int32)).save(tmp_path / "a.tif")
    assert_close(read_image(tmp_path / "a.tif", 1), torch.ones(1, 8, 8))


def test_transparent_images_are_composited_on_black(tmp_path):
    pixels = write_image(tmp_path / "a.png", (16, 16, 4))
    color = torch.from_numpy(pixels[..., :3] / 255 * pixels[..., 3:] / 255).float().movedim(2, 0)
    assert_close(read_image(tmp_path / "a.png", 3), color)
    assert_close(read_image(tmp_path / "a.png", 4), torch.from_numpy(pixels).movedim(2, 0) / 255)
    weights = torch.tensor([0.299, 0.587, 0.114])
    assert_close(read_image(tmp_path / "a.png", 1)[0], torch.einsum("c,cyx->yx", weights, color))
    Image.fromarray(pixels[..., 0]).save(tmp_path / "l.png")
    with Image.open(tmp_path / "l.png") as image:
        image.putalpha(51)
        image.save(tmp_path / "la.png")
    expected = torch.from_numpy(pixels[..., 0] / 255 * 0.2).float()[None]
    assert_close(read_image(tmp_path / "la.png", 1), expected)
    assert_close(read_image(tmp_path / "la.png", 3), expected.expand(3, -1, -1))


def test_palettes_are_looked_up(tmp_path):
    image = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 2).convert("P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.save(tmp_path / "p.png")
    blue = torch.arange(64).reshape(8, 8) % 2
    assert_close(read_image(tmp_path / "p.png", 3), torch.stack([1 - blue, 0 * blue, blue]).float())
    assert_close(read_image(tmp_path / "p.png", 1)[0], torch.where(blue == 1, 0.114, 0.299))
    assert np.array_equal(read_label_image(tmp_path / "p.png"), blue.numpy())  # labels are the indices
    image.save(tmp_path / "p.png", transparency=1)  # blue becomes transparent
    assert_close(read_image(tmp_path / "p.png", 3)[2], torch.zeros(8, 8))


def test_gray_is_repeated_and_color_becomes_luminance(tmp_path):
    gray = write_image(tmp_path / "gray.png")
    assert_close(read_image(tmp_path / "gray.png", 3), torch.from_numpy(gray).expand(3, -1, -1) / 255)
    write_image(tmp_path / "color.png", (16, 16, 3))
    with Image.open(tmp_path / "color.png") as image:
        luminance = torch.from_numpy(np.array(image.convert("L"))) / 255
    assert_close(read_image(tmp_path / "color.png", 1)[0], luminance, rtol=0, atol=1 / 255)


def test_text_is_not_an_image(tmp_path):
    (tmp_path / "a.png").write_text("a text of some length, not an image" * 20)
    with pytest.raises(DataError, match=r"a\.png cannot be read as an image"):
        read_image(tmp_path / "a.png", 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_images_are_named(tmp_path):
    (tmp_path / "a.png").write_text("")
    (tmp_path / "a.png").chmod(0)
    with pytest.raises(DataError, match=r"cannot read .*Permission denied"):
        read_image(tmp_path / "a.png", 1)
