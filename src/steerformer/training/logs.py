"""Logs of a run: CSV, JSON and TensorBoard."""

import csv
import io
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboardX.record_writer import RecordWriter  # type: ignore[import-untyped]

from steerformer.io.atomic import write_atomic, write_json
from steerformer.runs.run_folder import METRICS
from steerformer.training.checkpointing import TrainingState


def columns(score: str) -> tuple[str, ...]:
    """Columns of the table of epochs."""
    both = (f"{split}_{metric}" for split in ("train", "validation") for metric in ("loss", score))
    return "epoch", *both, "learning_rate", "seconds"


class Logs:
    """``metrics.csv``, ``metrics.json`` and ``tensorboard/`` of a run folder."""

    def __init__(self, folder: Path, *, first_step: int, score: str = "accuracy") -> None:
        self.folder = folder
        self._columns = columns(score)
        # steps that a killed run logged after its checkpoint are logged again
        self._tensorboard = ScalarWriter(folder / "tensorboard", first_step=first_step)

    def step(self, step: int, loss: float, learning_rate: float) -> None:
        """One point of the loss."""
        self._tensorboard.write(step, {"step/loss": loss, "step/learning_rate": learning_rate})

    def epoch(self, step: int, row: dict[str, Any]) -> None:
        """The metrics of an epoch."""
        metrics = {f"epoch/{name}": row[name] for name in self._columns[1:] if row[name] is not None}
        self._tensorboard.write(step, metrics)

    def metrics(self, state: TrainingState, final: dict[str, Any]) -> None:
        """Write the CSV table and the JSON file."""
        write_atomic(self.folder / "metrics.csv", _table(state.history, self._columns))
        best = state.best["epoch"] if state.best else None
        summary = {"finished": state.finished, "epochs": state.epoch, "best_epoch": best, "seconds": state.seconds}
        history = [_without_nan(row) for row in state.history]
        write_json(self.folder / METRICS, {**summary, **_without_nan(final), "history": history})

    def close(self) -> None:
        with suppress(OSError):  # everything is flushed; a full disk was reported already
            self._tensorboard.close()


def _table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity, which JSON does not have, by ``None``."""
    return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in values.items()}


class ScalarWriter:
    """TensorBoard scalars, written synchronously: on a full disk the caller gets the error.

    The usual writers use a background thread, which dies of the error, and their callers then wait forever.

    Args:
        folder: what ``tensorboard --logdir`` is given.
        first_step: points that an earlier start logged from this step on are discarded.
    """

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        # an explicit name: the library would put the name of the machine into it
        self._records = RecordWriter(str(folder / f"events.out.tfevents.{int(time.time())}.{os.getpid()}"))
        self._write(file_version="brain.Event:2")
        if first_step:
            self._write(step=first_step, session_log=SessionLog(status=SessionLog.START))
        self._records.flush()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One point in each of the named curves."""
        for name, value in values.items():
            self._write(step=step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)]))
        self._records.flush()

    def close(self) -> None:
        self._records.close()

    def _write(self, **content: Any) -> None:
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())
