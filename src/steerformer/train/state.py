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
    tally: list[float] = field(default_factory=list)
    """Sums from which the task finds the score of the epoch at hand."""
    samples: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    """One row an epoch."""
    best: dict[str, Any] | None = None
    """The row of the best epoch: of those with the highest validation score the one with the lowest loss."""
    finished: bool = False
    score: str = "accuracy"
    """Name of the score."""

    @classmethod
    def restored(cls, values: dict[str, Any]) -> "State":
        """From a checkpoint; also from one of the time when right answers were all that was counted."""
        if "correct" in values:
            values = {**values, "tally": [float(values["correct"]), float(values["samples"])]}
            del values["correct"]
        return cls(**values)

    def count(self, loss: float, tally: list[float], samples: int) -> None:
        """Note one step: sums over its samples."""
        self.step += 1
        self.loss += loss
        self.tally = [a + b for a, b in zip(self.tally, tally, strict=True)] if self.tally else tally
        self.samples += samples

    def close_epoch(self, row: dict[str, Any]) -> bool:
        """Note the row of an epoch that is done; whether it is the best so far."""
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.loss, self.tally, self.samples = 0.0, [], 0
        better = self.best is None or self._rank(row) >= self._rank(self.best)
        if better:
            self.best = row
        return better

    def epochs_without_progress(self) -> int:
        """Epochs since the best one."""
        return self.epoch - self.best["epoch"] if self.best else 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _rank(self, row: dict[str, Any]) -> tuple[float, float, int]:
        """Of two epochs the better one is larger: one with validation, and of two without the later one."""
        score = row[f"validation_{self.score}"]
        if score is None:
            return -1.0, 0.0, row["epoch"]
        return score, -row["validation_loss"], -row["epoch"]
