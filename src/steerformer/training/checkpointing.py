"""Checkpoints: everything that an exact resume needs, in a file that executes no code when read."""

import io
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steerformer.io.atomic import write_atomic

FORMAT = 3


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message is one line."""


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically: the previous one stays valid until the new one is complete."""
    buffer = io.BytesIO()  # torch.save to a path hides the reason of a failure
    torch.save({"format": FORMAT, **content}, buffer)
    write_atomic(path, buffer.getvalue())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What :func:`save_checkpoint` wrote, on the CPU."""
    data = io.BytesIO(path.read_bytes())
    try:
        content = torch.load(data, map_location="cpu", weights_only=True)
    except Exception:  # torch raises many kinds of errors here
        raise CheckpointError(
            f"{path} is damaged or not a checkpoint of steerformer; delete it to restart the run."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version of steerformer; delete it to restart the run."
        )
    return content


def random_states() -> dict[str, Any]:
    """Random states of Python, numpy and torch, as values that a checkpoint may hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    version, words, spare = random.getstate()
    return {
        "python": (version, torch.tensor(words), spare),
        "numpy": (kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore the random states of :func:`random_states`."""
    version, words, spare = states["python"]
    random.setstate((version, tuple(words.tolist()), spare))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@dataclass
class TrainingState:
    """Progress and metrics of a run, as its checkpoint holds them."""

    epoch: int = 0
    """Finished epochs."""
    step: int = 0
    """Finished steps of the current epoch."""
    loss: float = 0.0
    """Sum over the samples of the current epoch."""
    counts: list[float] = field(default_factory=list)
    """Sums from which the task computes the score of the current epoch."""
    samples: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    """One row per epoch."""
    best: dict[str, Any] | None = None
    """Row of the best epoch: highest validation score, then lowest loss."""
    finished: bool = False
    score: str = "accuracy"
    """Name of the score."""

    def count(self, loss: float, counts: list[float], samples: int) -> None:
        """Record one step: sums over its samples."""
        self.step += 1
        self.loss += loss
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)] if self.counts else counts
        self.samples += samples

    def close_epoch(self, row: dict[str, Any]) -> bool:
        """Record a finished epoch; returns whether it is the best so far."""
        self.history.append(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.loss, self.counts, self.samples = 0.0, [], 0
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
        """Sort key, larger is better: validated epochs first; of epochs without validation, the later one."""
        score = row[f"validation_{self.score}"]
        if score is None:
            return -1.0, 0.0, row["epoch"]
        return score, -row["validation_loss"], -row["epoch"]
