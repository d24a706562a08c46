"""Ranks that read in processes of their own, as a training job would, and die by SIGKILL after their last batch.

Such a process tells each batch and the state behind it, like a job that saves at every step, and goes on meanwhile:
what it and its workers are at when the signal comes is left to chance. They are one group, killed at once.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import traceback
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self, cast

from streamfeed.cli.rows import rows_of
from streamfeed.cli.stretch import Told
from streamfeed.errors import StreamfeedError, WorkerError
from streamfeed.loader.pool import cause_of_end, without_main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from streamfeed.cli.stretch import Stretch
    from streamfeed.loader.provenance import TracedBatch

__all__ = ["KilledRank", "read_killed"]


def read_killed(stretches: Sequence[Stretch]) -> list[Told]:
    """Read all ``stretches`` at the same time, each in a process that is killed behind its last batch.

    Raises what was raised there, or :class:`WorkerError` where one died by itself. None is left, whatever happens.
    """
    with tempfile.TemporaryDirectory(prefix="sf-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        ranks = [stack.enter_context(KilledRank(stretch, folder)) for stretch in stretches]
        return [rank.read() for rank in ranks]


class KilledRank:
    """A process that reads ``stretch`` and what lies behind it; its temporary files are in ``folder``."""

    def __init__(self, stretch: Stretch, folder: str) -> None:
        context = multiprocessing.get_context("spawn")  # with a fork, it would be this process in many respects
        self._stretch = stretch
        self._is_killed = False
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_tell, args=(stretch, theirs, folder))
        with without_main():
            self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        """Return the process itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it, if it is still there."""
        self._kill()
        self._pipe.close()

    def read(self) -> Told:
        """Return the rows of the stretch and the last state behind them, once the process has been killed."""
        told = self._next()
        rows = dict(told.rows)
        for _ in range(self._stretch.batches):
            if told.state["ended"]:
                break
            told = self._next()
            rows |= told.rows
        self._kill()
        if self._process.exitcode != -signal.SIGKILL:
            raise self._died()
        return Told(rows, told.state)

    def _next(self) -> Told:
        try:
            told: Told | StreamfeedError = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._kill()  # also the workers that it may have left
            raise self._died() from None
        if isinstance(told, StreamfeedError):
            raise told
        return told

    def _kill(self) -> None:
        if self._is_killed:
            return
        self._is_killed = True
        with suppress(ProcessLookupError, PermissionError):  # it has not come so far as to have a group
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()

    def _died(self) -> WorkerError:
        cause = cause_of_end(self._process.exitcode)
        return WorkerError(f"the process of rank {self._stretch.rank} died before it was killed: {cause}")


def _tell(stretch: Stretch, pipe: Connection, folder: str) -> None:
    """Tell all batches of the stream, then wait to be killed; ends by itself only where nobody is left to do it."""
    os.setsid()
    tempfile.tempdir = folder  # a fork server that is killed leaves its socket
    logging.getLogger("streamfeed").setLevel(logging.ERROR)
    try:
        for told in _batch_by_batch(stretch):
            pipe.send(told)
    except Exception as error:  # noqa: BLE001 - every kind of failure must reach who compares
        with suppress(OSError):
            pipe.send(_ours(error))
    with suppress(EOFError, OSError):
        pipe.recv()


def _batch_by_batch(stretch: Stretch) -> Iterator[Told]:
    """Yield the state in which it begins, then each batch, also of those behind it, and the end if there is one."""
    with stretch.loader() as loader:
        yield Told({}, loader.state_dict())
        for batch in loader:
            rows = rows_of(cast("TracedBatch", batch))
            yield Told({number: row.alone() for number, row in rows.items()}, loader.state_dict())
        yield Told({}, loader.state_dict())


def _ours(error: Exception) -> StreamfeedError:
    if isinstance(error, StreamfeedError):
        return error
    summary = "".join(traceback.format_exception_only(error)).strip()
    return WorkerError(f"reading raised {summary}", "".join(traceback.format_exception(error)))
