"""Signal handling: Ctrl-C and SIGTERM stop a run after the current step."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):  # noqa: N818, not an error
    """Training was interrupted and can be resumed; the message says how."""


class StopSignals:
    """While active, SIGINT and SIGTERM only set :attr:`received`; a second one has its usual effect."""

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
