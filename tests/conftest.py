"""Fixtures that every test may ask for."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from steerformer import SO2, SO3
from steerformer.groups import Group


@pytest.fixture(params=[SO2, SO3], ids=repr)
def group(request: pytest.FixtureRequest) -> Group:
    """Images and volumes share their code, so they share their tests."""
    return request.param


@pytest.fixture
def float64() -> Iterator[None]:
    """Exactness is judged in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same random numbers on every run and in any order of the tests."""
    torch.manual_seed(0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Calls as users make them: without the runtime type checks, which would else speak before our own words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
