"""Single images and volumes: what is read, and what is said of those that cannot be."""

import gzip
import logging
import os

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from steerformer.data import DataError, read_file
from steerformer.data.files import fit, kind_of


def picture(path, shape=(16, 16), *, seed=0, mode=None):
    pixels = np.random.default_rng(seed).integers(0, 256, size=shape).astype(np.uint8)
    Image.fromarray(pixels).convert(mode).save(path) if mode else Image.fromarray(pixels).save(path)
    return pixels


def nifti(path, array, *, spacing=(1.0, 1.0, 1.0), affine=None):
    affine = np.diag([*spacing, 1.0]) if affine is None else affine
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return array


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "PNG"])
def test_an_image_of_the_right_size_is_its_pixels(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    gray = picture(path)
    assert_close(read_file(path, size=16, channels=1), torch.from_numpy(gray)[None] / 255)
    color = picture(path, (16, 16, 3))
    assert_close(read_file(path, size=16, channels=3), torch.from_numpy(color).movedim(2, 0) / 255)


def test_jpegs_palettes_and_16_bits_are_read(tmp_path):
    ramp = np.linspace(0, 255, 256).reshape(16, 16).astype(np.uint8)
    Image.fromarray(ramp).save(tmp_path / "a.jpg", quality=100)
    assert_close(read_file(tmp_path / "a.jpg", size=16, channels=1)[0], torch.from_numpy(ramp) / 255, rtol=0, atol=0.02)
    picture(tmp_path / "p.png", (16, 16, 3), mode="P")
    assert read_file(tmp_path / "p.png", size=16, channels=3).shape == (3, 16, 16)
    deep = (np.arange(256).reshape(16, 16) * 257).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert_close(read_file(tmp_path / "deep.png", size=16, channels=1)[0], torch.from_numpy(deep / 65535).float())
    Image.fromarray(ramp > 100).save(tmp_path / "bits.png")
    assert read_file(tmp_path / "bits.png", size=16, channels=1).unique().tolist() == [0.0, 1.0]


def test_the_longest_side_decides_and_the_rest_is_padded():
    x = torch.rand(2, 8, 4)
    same = fit(x, 8)
    assert_close(same[:, :, 2:6], x)
    assert same[:, :, :2].abs().max() == same[:, :, 6:].abs().max() == 0
    half = fit(x, 4)
    assert_close(half[:, :, 1:3], x.unflatten(1, (4, 2)).unflatten(3, (2, 2)).mean(dim=(2, 4)))
    assert fit(x, 16).shape == (2, 16, 16)
    assert_close(fit(torch.ones(1, 5, 5, 5), 9), torch.ones(1, 9, 9, 9))


def test_the_size_of_voxels_counts(tmp_path):
    nifti(tmp_path / "a.nii", np.ones((4, 4, 2), np.float32), spacing=(1.0, 1.0, 2.0))
    assert_close(read_file(tmp_path / "a.nii", size=4, channels=1), torch.ones(1, 4, 4, 4))


@pytest.mark.parametrize("suffix", ["nii", "nii.gz", "npy"])
def test_a_volume_of_the_right_size_is_its_voxels(tmp_path, suffix):
    array = np.random.default_rng(0).normal(size=(5, 5, 5)).astype(np.float32)
    path = tmp_path / f"a.{suffix}"
    np.save(path, array) if suffix == "npy" else nifti(path, array)
    assert_close(read_file(path, size=5, channels=1), torch.from_numpy(array)[None])
    deviation = read_file(path, size=5, channels=1, scale="deviation")
    assert float(deviation.std()) == pytest.approx(1)


def test_axes_are_turned_to_right_front_and_up(tmp_path):
    array = np.random.default_rng(0).normal(size=(4, 4, 4)).astype(np.float32)
    nifti(tmp_path / "flipped.nii", array[::-1], affine=np.diag([-1.0, 1, 1, 1]))
    assert_close(read_file(tmp_path / "flipped.nii", size=4, channels=1)[0], torch.from_numpy(array))


def test_channels_of_volumes_are_on_the_last_axis(tmp_path):
    array = np.random.default_rng(0).normal(size=(3, 3, 3, 2)).astype(np.float32)
    np.save(tmp_path / "a.npy", array)
    assert_close(read_file(tmp_path / "a.npy", size=3, channels=2), torch.from_numpy(array).movedim(3, 0))


def test_kinds_are_told_by_the_ending(tmp_path):
    names = {"a.PNG": "image", "b.nii.gz": "volume", "c.npy": "volume", "d.txt": None, ".e.png": None, "f.gz": None}
    assert {name: kind_of(tmp_path / name) for name in names} == names


VOLUME = np.zeros((4, 4, 4), np.float32)


@pytest.mark.parametrize(
    "array, message",
    [
        (np.full((4, 4, 4), np.nan), "holds NaN or infinity"),
        (np.where(np.arange(4) == 2, np.inf, VOLUME), "holds NaN or infinity"),
        (np.zeros((4, 4)), r"has shape \(4, 4\), expected three axes"),
        (np.zeros((4, 4, 4, 3)), "has 3 channels .*, expected 1"),
        (np.zeros((2, 2, 2, 2, 2)), r"has shape \(2, 2, 2, 2, 2\), expected three axes"),
        (np.zeros((0, 4, 4)), r"has shape \(0, 4, 4\), expected three axes"),
        (np.zeros((4, 4, 4), complex), "holds complex128, expected real numbers"),
        (np.array(["a"]), "holds <U1, expected real numbers"),
    ],
)
def test_bad_volumes_are_named(tmp_path, array, message):
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(DataError, match=rf"bad\.npy {message}"):
        read_file(tmp_path / "bad.npy", size=4, channels=1)
    if array.dtype.kind == "f" and array.size:
        nifti(tmp_path / "bad.nii.gz", array)
        with pytest.raises(DataError, match=rf"bad\.nii\.gz {message}"):
            read_file(tmp_path / "bad.nii.gz", size=4, channels=1)


def cut(path, keep=0.5):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "gif", "webp"])
def test_a_cut_image_is_named(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    picture(path, (64, 64, 3))
    for keep in (0.7, 0.02, 0):
        cut(path, keep)
        with pytest.raises(DataError, match=rf"cut\.{suffix} cannot be read as an image"):
            read_file(path, size=16, channels=3)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz", "npy"])
@pytest.mark.parametrize("keep", [0.7, 0.02, 0])
def test_a_cut_volume_is_named(tmp_path, suffix, keep):
    path = tmp_path / f"cut.{suffix}"
    array = np.random.default_rng(0).normal(size=(16, 16, 16)).astype(np.float32)
    np.save(path, array) if suffix == "npy" else nifti(path, array)
    cut(path, keep)
    with pytest.raises(DataError, match=rf"cut\.{suffix} cannot be read as"):
        read_file(path, size=16, channels=1)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz", "npy"])
def test_damaged_headers_are_named_whatever_the_damage(tmp_path, suffix, capfd):
    random = np.random.default_rng(0)
    path = tmp_path / f"bad.{suffix}"
    array = random.normal(size=(5, 4, 3)).astype(np.float32)
    np.save(path, array) if suffix == "npy" else nifti(path, array)
    good = gzip.decompress(path.read_bytes()) if suffix == "nii.gz" else path.read_bytes()
    messages = []
    for _ in range(50):
        bad = bytearray(good)
        for place in random.integers(0, 128 if suffix == "npy" else 352, size=random.integers(1, 6)):
            bad[place] = random.integers(0, 256)
        path.write_bytes(gzip.compress(bad) if suffix == "nii.gz" else bad)
        try:
            assert read_file(path, size=4, channels=1).isfinite().all()
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 5 and all(f"bad.{suffix} " in line and "\n" not in line for line in messages)
    assert capfd.readouterr() == ("", "")


def test_headers_that_once_escaped_are_named(tmp_path, capfd):
    np.save(tmp_path / "a.npy", VOLUME)
    header = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(header.replace(b"(4, 4, 4)", b"(4, 4, 4 "))
    nifti(tmp_path / "a.nii", VOLUME)
    header = bytearray((tmp_path / "a.nii").read_bytes())
    header[280:328] = np.full(12, np.nan, np.float32).tobytes()  # the matrix that says where right and up are
    (tmp_path / "a.nii").write_bytes(header)
    nifti(tmp_path / "b.nii", VOLUME)
    header = bytearray((tmp_path / "b.nii").read_bytes())
    header[70:72] = b"\x07\x00"  # a kind of numbers that there is not
    (tmp_path / "b.nii").write_bytes(header)
    for name in ("a.npy", "a.nii", "b.nii"):
        with pytest.raises(DataError, match=rf"{name} cannot be read as"):
            read_file(tmp_path / name, size=4, channels=1)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("nibabel.global").disabled


def test_files_of_another_kind_are_named(tmp_path):
    for name in ("a.png", "a.nii", "a.npy"):
        (tmp_path / name).write_text("a text of some length, but no picture" * 20)
        with pytest.raises(DataError, match="cannot be read as"):
            read_file(tmp_path / name, size=4, channels=1)
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(b"text" * 100))
    with pytest.raises(DataError, match=r"b\.nii\.gz cannot be read as NIfTI"):
        read_file(tmp_path / "b.nii.gz", size=4, channels=1)
    np.save(tmp_path / "pickled.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"pickled\.npy cannot be read"):
        read_file(tmp_path / "pickled.npy", size=4, channels=1)


@pytest.mark.parametrize(
    "mode, found, channels", [("RGB", 3, 5), ("RGB", 3, 4), ("L", 1, 2), ("RGBA", 4, 2), ("CMYK", 4, 3)]
)
def test_channels_that_would_have_to_be_guessed_are_named(tmp_path, mode, found, channels):
    picture(tmp_path / "a.tif", mode=mode)
    with pytest.raises(DataError, match=rf"a\.tif has {found} channels \({mode}\), expected {channels}"):
        read_file(tmp_path / "a.tif", size=8, channels=channels)


def test_fractions_are_taken_as_they_are(tmp_path):
    values = np.random.default_rng(0).uniform(size=(16, 16)).astype(np.float32)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert_close(read_file(tmp_path / "a.tif", size=16, channels=1)[0], torch.from_numpy(values))


@pytest.mark.parametrize("most, kind", [(1.5, np.float32), (-0.5, np.float32), (70000, np.int32), (-1, np.int32)])
def test_values_that_are_neither_fractions_nor_16_bits_are_named(tmp_path, most, kind):
    Image.fromarray(np.full((8, 8), most, kind)).save(tmp_path / "a.tif")
    with pytest.raises(
        DataError, match=rf"a\.tif holds values from {most} to {most} .*expected 0 to 65535, or fractions"
    ):
        read_file(tmp_path / "a.tif", size=8, channels=1)
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=r"a\.tif holds NaN or infinity"):
        read_file(tmp_path / "a.tif", size=8, channels=1)


def test_integers_of_16_bits_in_wider_files_are_scaled(tmp_path):
    Image.fromarray(np.full((8, 8), 65535, np.int32)).save(tmp_path / "a.tif")
    assert_close(read_file(tmp_path / "a.tif", size=8, channels=1), torch.ones(1, 8, 8))


def test_transparent_images_lie_on_black(tmp_path):
    pixels = picture(tmp_path / "a.png", (16, 16, 4))
    color = torch.from_numpy(pixels[..., :3] / 255 * pixels[..., 3:] / 255).float().movedim(2, 0)
    assert_close(read_file(tmp_path / "a.png", size=16, channels=3), color)
    assert_close(read_file(tmp_path / "a.png", size=16, channels=4), torch.from_numpy(pixels).movedim(2, 0) / 255)
    weights = torch.tensor([0.299, 0.587, 0.114])
    assert_close(read_file(tmp_path / "a.png", size=16, channels=1)[0], torch.einsum("c,cyx->yx", weights, color))
    Image.fromarray(pixels[..., 0]).save(tmp_path / "l.png")
    with Image.open(tmp_path / "l.png") as image:
        image.putalpha(51)
        image.save(tmp_path / "la.png")
    expected = torch.from_numpy(pixels[..., 0] / 255 * 0.2).float()[None]
    assert_close(read_file(tmp_path / "la.png", size=16, channels=1), expected)
    assert_close(read_file(tmp_path / "la.png", size=16, channels=3), expected.expand(3, -1, -1))


def test_palettes_are_looked_up_in_gray_or_color(tmp_path):
    image = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 2).convert("P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.save(tmp_path / "p.png")
    blue = torch.arange(64).reshape(8, 8) % 2
    found = read_file(tmp_path / "p.png", size=8, channels=3)
    assert_close(found, torch.stack([1 - blue, 0 * blue, blue]).float())
    gray = read_file(tmp_path / "p.png", size=8, channels=1)[0]
    assert_close(gray, torch.where(blue == 1, 0.114, 0.299))
    image.save(tmp_path / "p.png", transparency=1)  # blue is not seen
    assert_close(read_file(tmp_path / "p.png", size=8, channels=3)[2], torch.zeros(8, 8))


def test_gray_becomes_three_equal_channels_and_color_its_luminance(tmp_path):
    gray = picture(tmp_path / "gray.png")
    expected = torch.from_numpy(gray).expand(3, -1, -1) / 255
    assert_close(read_file(tmp_path / "gray.png", size=16, channels=3), expected)
    picture(tmp_path / "color.png", (16, 16, 3))
    with Image.open(tmp_path / "color.png") as image:
        luminance = torch.from_numpy(np.array(image.convert("L"))) / 255
    assert_close(read_file(tmp_path / "color.png", size=16, channels=1)[0], luminance, rtol=0, atol=1 / 255)


def test_absent_and_unknown_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*a\.png"):
        read_file(tmp_path / "a.png", size=4, channels=1)
    with pytest.raises(DataError, match=r"a\.txt is neither an image"):
        read_file(tmp_path / "a.txt", size=4, channels=1)
    with pytest.raises(DataError, match=r"is a folder; name the files in it"):
        read_file(tmp_path, size=4, channels=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["a.png", "a.nii", "a.npy"])
def test_files_that_may_not_be_read_are_named(tmp_path, name):
    (tmp_path / name).write_text("")
    (tmp_path / name).chmod(0)
    with pytest.raises(DataError, match=r"cannot read .*Permission denied"):
        read_file(tmp_path / name, size=4, channels=1)
