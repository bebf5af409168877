"""Scalars for TensorBoard."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboardX.record_writer import RecordWriter  # type: ignore[import-untyped]


class ScalarWriter:
    """Writes at once and in the caller's thread: where the disk is full, the caller gets the error.

    The usual writers leave it to a thread of their own, which dies of it, and their callers then wait for ever.

    Args:
        folder: what ``tensorboard --logdir`` is given.
        first_step: what an earlier start logged from this step on is taken back.
    """

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        # named by us: the library would put the name of the machine into that of the file
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
