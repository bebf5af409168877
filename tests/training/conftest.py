"""Synthetic digits with a cache folder of their own, and a finished run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from steerformer.training import train_run
from training import tiny


@pytest.fixture(autouse=True, scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the digits and their cache."""
    folder = tmp_path_factory.mktemp("digits")
    with tiny.synthetic_digits(folder):
        yield folder


@pytest.fixture(autouse=True, scope="module")
def cache(digits: Path) -> Iterator[None]:
    """Other tests in this process may have chosen another cache since."""
    with tiny.digits_cache(digits):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration of one epoch."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.values(epochs=1)))
    return path


@pytest.fixture(scope="session")
def finished(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; only read."""
    with tiny.digits_cache(digits):
        return train_run(tiny.experiment(epochs=1), tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name, content in tiny.files_in(finished).items():
        (folder / name).write_bytes(content)
    return folder
