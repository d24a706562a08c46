"""SIGTERM and SIGINT: a run that is asked to stop saves what it has learnt, whatever it is doing, and leaves.

A signal raises :class:`Stopped` at once where something is waited for (start-up, data), and else leaves a mark that is
looked at before the next wait. What must not be cut short, such as a save, needs no care: it is the default.
"""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["SIGNALS", "Stop", "Stopped"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


class Stopped(BaseException):
    """The run was asked to stop by ``signal``; no error, so that nothing that handles errors keeps it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = signal.Signals(number)

    @property
    def code(self) -> int:
        """The exit code by the shell's convention: 128 and the number of the signal."""
        return 128 + self.signal


class Stop:
    """Whether the run was asked to stop: ``asked`` is the number of the first signal, 0 before."""

    def __init__(self) -> None:
        self.asked = 0
        self._interruptible = False

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Handle the signals inside, if this is the main thread: elsewhere Python handles none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise :class:`Stopped` inside as soon as a signal comes, or at the beginning if one has come already."""
        before, self._interruptible = self._interruptible, True
        try:
            self.check()  # behind the switch: a signal between the two would only leave its mark, and the wait go on
            yield
        finally:
            self._interruptible = before

    def check(self) -> None:
        """Raise :class:`Stopped` if a signal has come."""
        if self.asked:
            raise Stopped(self.asked)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            with suppress(RuntimeError):  # the signal may have come while the same stream was written to
                _log.warning("already stopping since %s came: saving", signal.Signals(self.asked).name)
            return
        self.asked = number
        if self._interruptible:
            raise Stopped(number)
