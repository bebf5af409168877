"""Ctrl-C and termination as wishes, fulfilled after the step at hand."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):  # noqa: N818, it is no error
    """Training stopped because it was asked to, and can be resumed; the message says how."""


class StopSignals:
    """While active, SIGINT and SIGTERM only set :attr:`asked`; a second one acts as it always did."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
