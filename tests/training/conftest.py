"""Synthetic digits with a cache folder of their own, and a finished run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from steerformer.training import train_run
from training import tiny


@pytest.fixture(autouse=True, scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with tiny.synthetic_digits(tmp_path_factory.mktemp("digits")):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration of one epoch."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.values(epochs=1)))
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; only read."""
    return train_run(tiny.experiment(epochs=1), tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name, content in tiny.files_in(finished).items():
        (folder / name).write_bytes(content)
    return folder
