"""A worker process: hosts its slots and writes their messages into the ring until it is told to stop.

Imports neither torch nor transformers, so that it starts in a fraction of a second and stays small.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from multiprocessing import parent_process
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from streamfeed.encode.proof import thread_environment
from streamfeed.lane.ahead import AheadThread
from streamfeed.loader.heap import Heap, arrow_on_the_heap
from streamfeed.loader.job import Job, Messages
from streamfeed.loader.needs import worker_descriptors
from streamfeed.loader.ring import SLOTS, Ring, SharedObject
from streamfeed.loader.wire import Header, failure
from streamfeed.machine import allow_descriptors
from streamfeed.stages import Clock, Stages
from streamfeed.stats import ReadStats

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["WorkerArguments", "main"]

WATCH_SECONDS = 1.0
"""How often a worker looks whether its trainer is still there, where the system does not say so by itself."""


class WorkerArguments(NamedTuple):
    """What a worker process gets: ``jobs`` of all workers, of which its own is ``number``.

    ``inherited`` are the trainer's own pipe ends, which a forked worker must not keep open; ``threads`` the engine's.
    """

    jobs: SharedObject
    number: int
    ring: Ring
    pipe: Connection
    trainer: int
    inherited: list[Connection]
    threads: int = 1


class _TrainerGoneError(Exception):
    """The trainer closed its end of the pipe: nobody needs this worker any more."""


class _Line:
    """The worker's end of the pipe. An error here is the trainer's end, one anywhere else is a failure to report."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def has_news(self) -> bool:
        """Say whether :meth:`receive` returns at once."""
        try:
            return self._pipe.poll(0)
        except OSError as error:
            raise _TrainerGoneError from error

    def receive(self) -> bytes:
        """Wait for what the trainer sends."""
        try:
            return self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise _TrainerGoneError from error

    def send(self, header: Header) -> None:
        """Send ``header``."""
        try:
            self._pipe.send_bytes(header.pack())
        except OSError as error:
            raise _TrainerGoneError from error

    def wait_for_end(self) -> NoReturn:
        """Stay until the trainer closes its end: the last messages are in our memory."""
        while True:
            self.receive()


def main(arguments: WorkerArguments) -> NoReturn:
    """Run a worker; never returns. It ends at once, whatever it is doing, when the trainer does or closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the trainer decides
    for pipe in arguments.inherited:
        pipe.close()
    threading.Thread(target=_watch, args=(arguments,), name="trainer-watch", daemon=True).start()
    os.environ.update(thread_environment(arguments.threads))
    arrow_on_the_heap()
    import pyarrow as pa  # here, so that a trainer that only starts workers does without it

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    line = _Line(arguments.pipe)
    try:
        _serve(arguments, line)
    except _TrainerGoneError:
        pass
    except BaseException as error:  # noqa: BLE001 - every kind of failure must reach the trainer
        with suppress(_TrainerGoneError):
            line.send(failure(error))
            line.wait_for_end()
    os._exit(0)  # the reading thread may be in the middle of a window that nobody wants


def _serve(arguments: WorkerArguments, line: _Line) -> NoReturn:
    buffers = arguments.ring.buffers()
    job: Job = arguments.jobs.get()[arguments.number]
    allow_descriptors(worker_descriptors(job.plan, len(job.slots)))
    reading, handing = (Stages(Clock(record=job.recorded)) for _ in range(2))  # of the two threads
    stats = ReadStats(stages=reading)
    free = list(range(SLOTS))
    heap = Heap(arguments.threads)
    thread = AheadThread(reading)
    try:
        messages = Messages(job.host(stats, thread, handing), job)
        rows = 1
        while rows:
            if not free:
                with handing.send.blocked:
                    free.append(line.receive()[0])
            while line.has_news():
                free.append(line.receive()[0])
            slot = free.pop(0)
            message = messages.next(buffers[slot])
            rows = len(message.ids)
            work = reading.to_bytes() + handing.to_bytes()
            spans = (reading.take_recorded(), handing.take_recorded()) if job.recorded else ()
            with handing.send.busy:
                line.send(
                    Header(slot, rows, len(message.starts), stats.bytes, message.payload, stats.retries, work, spans)
                )
            heap.tick()
        line.wait_for_end()
    finally:
        thread.stop()  # a failure must not wait for windows that nobody wants


def _watch(arguments: WorkerArguments) -> None:
    """End this process when the trainer ends or closes its end of the pipe.

    The trainer's end shows in the parent's sentinel, unless a process that it forked holds that, and in a handle of its
    process, where there is such a thing; also where its parent does not reap it.
    """
    poll = select.poll()
    poll.register(arguments.pipe.fileno(), 0)  # hang-up alone: what comes is for the main thread
    parent = parent_process()
    if parent is not None:
        poll.register(parent.sentinel, select.POLLIN)
    with suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(arguments.trainer), select.POLLIN)
    while not poll.poll(WATCH_SECONDS * 1000):
        try:
            os.kill(arguments.trainer, 0)
        except ProcessLookupError:
            break
    os._exit(0)
