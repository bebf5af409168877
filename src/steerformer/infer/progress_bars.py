"""Progress bars: the interface by which long computations report, without knowing how it is shown."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[..., None]]]
"""Called with a description and a total; a context whose value is called with the steps done, 1 by default."""


@contextmanager
def no_progress_bar(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show nothing."""
    yield lambda steps=1: None
