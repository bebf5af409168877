"""The reporter: how a training run reports its progress."""

from types import TracebackType
from typing import Any


class Reporter:
    """Receives the progress of a run and ignores it; subclasses show it."""

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None

    def preprocess(self, what: str, done: int, total: int) -> None:
        """Data are being preprocessed: a description, items done, and the total."""

    def start(self, *, epochs: int, steps: int, done: int, score: str) -> None:
        """Training starts: ``steps`` per epoch, ``done`` of all steps finished; ``score`` is the name of the score."""

    def step(self, *, epoch: int, step: int, loss: float, score: float) -> None:
        """A step is done; running means of the current epoch."""

    def epoch(self, row: dict[str, Any], *, best: bool) -> None:
        """An epoch is done, with these metrics."""

    def say(self, text: str) -> None:
        """Any other message."""
