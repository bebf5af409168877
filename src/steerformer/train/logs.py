"""What a run writes down about itself, for people, spreadsheets, programs and TensorBoard."""

import csv
import io
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from steerformer.train.files import write_json, write_whole
from steerformer.train.state import State

COLUMNS = (
    "epoch",
    "train_loss",
    "train_accuracy",
    "validation_loss",
    "validation_accuracy",
    "learning_rate",
    "seconds",
)


class Logs:
    """``metrics.csv``, ``metrics.json`` and ``tensorboard/`` of a run folder."""

    def __init__(self, folder: Path, *, first_step: int) -> None:
        self.folder = folder
        # what a killed run logged beyond its checkpoint is logged again, so it is taken back
        purge: dict[str, Any] = {"purge_step": first_step} if first_step else {}
        self.tensorboard = TensorBoardLogger(folder / "tensorboard", name="", version="", **purge)

    def step(self, step: int, loss: float, learning_rate: float) -> None:
        """One point of the loss."""
        self.tensorboard.log_metrics({"step/loss": loss, "step/learning_rate": learning_rate}, step)

    def epoch(self, step: int, row: dict[str, Any]) -> None:
        """The figures of an epoch."""
        figures = {f"epoch/{name}": row[name] for name in COLUMNS[1:] if row[name] is not None}
        self.tensorboard.log_metrics(figures, step)
        self.tensorboard.save()

    def metrics(self, state: State, final: dict[str, Any]) -> None:
        """Write the table and the JSON file, in whole."""
        write_whole(self.folder / "metrics.csv", _table(state.history))
        best = state.best["epoch"] if state.best else None
        summary = {"finished": state.finished, "epochs": state.epoch, "best_epoch": best, "seconds": state.seconds}
        write_json(self.folder / "metrics.json", {**summary, **final, "history": state.history})

    def close(self) -> None:
        self.tensorboard.finalize("success")


def _table(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
