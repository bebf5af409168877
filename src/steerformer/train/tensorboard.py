"""Scalars for TensorBoard."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.summary import scalar  # type: ignore[import-untyped]


class ScalarWriter:
    """Writes at once and in the caller's thread: where the disk is full, the caller gets the error.

    The usual writers leave it to a thread of their own, which dies of it, and their callers then wait for ever.

    Args:
        folder: what ``tensorboard --logdir`` is given.
        first_step: what an earlier start logged from this step on is taken back.
    """

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        self._events = EventsWriter(str(folder / "events"), filename_suffix=f".{os.getpid()}")
        if first_step:
            start = SessionLog(status=SessionLog.START)
            self._events.write_event(Event(wall_time=time.time(), step=first_step, session_log=start))
        self._events.flush()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One point in each of the named curves."""
        for name, value in values.items():
            self._events.write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
        self._events.flush()

    def close(self) -> None:
        self._events.close()
