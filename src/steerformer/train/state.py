"""How far a run has come, and what it has measured so far."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class State:
    """Position and figures of a run; all of it goes into its checkpoint."""

    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    """Steps that are done in the epoch at hand."""
    loss: float = 0.0
    """Sum over the samples of the epoch at hand."""
    correct: int = 0
    samples: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    """One row an epoch."""
    best: dict[str, Any] | None = None
    """The row of the best epoch: of those with the highest validation accuracy the one with the lowest loss."""
    finished: bool = False

    def count(self, loss: float, correct: int, samples: int) -> None:
        """Note one step: sums over its samples."""
        self.step += 1
        self.loss += loss
        self.correct += correct
        self.samples += samples

    def close_epoch(self, row: dict[str, Any]) -> bool:
        """Note the row of an epoch that is done; whether it is the best so far."""
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.loss, self.correct, self.samples = 0.0, 0, 0
        better = self.best is None or _rank(row) >= _rank(self.best)
        if better:
            self.best = row
        return better

    def epochs_without_progress(self) -> int:
        """Epochs since the best one."""
        return self.epoch - self.best["epoch"] if self.best else 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _rank(row: dict[str, Any]) -> tuple[float, float, int]:
    """Of two epochs the better one is larger; without validation it is the later one."""
    if row["validation_accuracy"] is None:
        return 0.0, 0.0, row["epoch"]
    return row["validation_accuracy"], -row["validation_loss"], -row["epoch"]
