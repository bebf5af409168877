"""Digits that anyone can make, prepared in a folder of their own."""

import pytest

from train import tiny


@pytest.fixture(autouse=True, scope="session")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(folder / "cache"))
        patch.setitem(tiny.DATA, "root", str(tiny.write_digits(folder / "digits.npz")))
        yield
