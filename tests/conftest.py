"""Fixtures shared by all tests."""

from collections.abc import Iterator

import pytest
import torch

from checks import without_type_checks
from steerformer import SO2, SO3
from steerformer.groups import Group


@pytest.fixture(params=[SO2, SO3], ids=repr)
def group(request: pytest.FixtureRequest) -> Group:
    """Run a test for images and for volumes, which share their code."""
    return request.param


@pytest.fixture
def float64() -> Iterator[None]:
    """Set the default dtype to float64, for exactness tests."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def seed() -> None:
    """Seed every test, so that results do not depend on the order of tests."""
    torch.manual_seed(0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Disable jaxtyping's runtime checks: they raise before the library's own errors, and they take time."""
    with without_type_checks():
        yield


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of preprocessed data for one file of tests, instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
