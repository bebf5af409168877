"""What a run writes down about itself, for people, spreadsheets, programs and TensorBoard."""

import csv
import io
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from steerformer.files import write_json, write_whole
from steerformer.train.folder import METRICS
from steerformer.train.state import State
from steerformer.train.tensorboard import ScalarWriter


def columns(score: str) -> tuple[str, ...]:
    """Figures of an epoch, by the name of the score."""
    both = (f"{split}_{figure}" for split in ("train", "validation") for figure in ("loss", score))
    return "epoch", *both, "learning_rate", "seconds"


class Logs:
    """``metrics.csv``, ``metrics.json`` and ``tensorboard/`` of a run folder."""

    def __init__(self, folder: Path, *, first_step: int, score: str = "accuracy") -> None:
        self.folder = folder
        self._columns = columns(score)
        # what a killed run logged beyond its checkpoint is logged again
        self._tensorboard = ScalarWriter(folder / "tensorboard", first_step=first_step)

    def step(self, step: int, loss: float, learning_rate: float) -> None:
        """One point of the loss."""
        self._tensorboard.write(step, {"step/loss": loss, "step/learning_rate": learning_rate})

    def epoch(self, step: int, row: dict[str, Any]) -> None:
        """The figures of an epoch."""
        figures = {f"epoch/{name}": row[name] for name in self._columns[1:] if row[name] is not None}
        self._tensorboard.write(step, figures)

    def metrics(self, state: State, final: dict[str, Any]) -> None:
        """Write the table and the JSON file, in whole."""
        write_whole(self.folder / "metrics.csv", _table(state.history, self._columns))
        best = state.best["epoch"] if state.best else None
        summary = {"finished": state.finished, "epochs": state.epoch, "best_epoch": best, "seconds": state.seconds}
        history = [_without_nan(row) for row in state.history]
        write_json(self.folder / METRICS, {**summary, **_without_nan(final), "history": history})

    def close(self) -> None:
        with suppress(OSError):  # all is flushed; of a full disk we have heard
            self._tensorboard.close()


def _table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for NaN and infinity, though Python writes them."""
    return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in values.items()}
