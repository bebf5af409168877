"""Progress bars on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from steerformer.cli.console import console


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[..., None]]:
    """A bar on a terminal; call its value with the number of steps done, 1 by default."""
    with _bars(disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=total)
        yield lambda steps=1: bars.advance(task, steps)


class DataProgress:
    """A bar for each stage of loading data."""

    def __init__(self) -> None:
        self._bars = _bars()
        self._tasks: dict[str, TaskID] = {}

    def update(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done)

    def __enter__(self) -> "DataProgress":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()


def _bars(*, disable: bool = False) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=disable)
