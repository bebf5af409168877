"""Context managers shared by tests: runtime type checks switched off, and errors expected in a loop over cases."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping
import pytest


@contextmanager
def without_type_checks() -> Iterator[None]:
    """Disable jaxtyping's runtime checks, which take most of the time of repeated calls."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@contextmanager
def raises(case: object, message: str, error: type[Exception] = ValueError) -> Iterator[None]:
    """``pytest.raises`` for one of many cases: a failure names the case."""
    try:
        with pytest.raises(error, match=message):
            yield
    except (AssertionError, pytest.fail.Exception) as problem:
        pytest.fail(f"{case!r}: {problem}")
