"""A worker process: hosts its slots and writes their messages into the ring until it is told to stop.

Imports neither torch nor transformers, so that it starts in a fraction of a second and stays small.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import NamedTuple, NoReturn

import pyarrow as pa

from streamfeed.encode.proof import thread_environment
from streamfeed.loader.job import Job, Messages
from streamfeed.loader.ring import SLOTS, Ring, SharedObject
from streamfeed.loader.wire import Header, failure
from streamfeed.stats import ReadStats

__all__ = ["WorkerArguments", "main"]

WATCH_SECONDS = 1.0
"""How often a worker looks whether its trainer is still there, where the system does not say so by itself."""


class WorkerArguments(NamedTuple):
    """What a worker process gets: ``jobs`` of all workers and its own ``number``. ``inherited`` are the trainer's own pipe ends, which a forked worker must not keep open."""

    jobs: SharedObject
    number: int
    ring: Ring
    pipe: Connection
    trainer: int
    inherited: list[Connection]


def main(arguments: WorkerArguments) -> NoReturn:
    """Run a worker; never returns. Exits at once, whatever it is doing, when the trainer is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the trainer decides
    for pipe in arguments.inherited:
        pipe.close()
    threading.Thread(target=_watch, args=(arguments.trainer,), name="trainer-watch", daemon=True).start()
    os.environ.update(thread_environment(1))
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    status = 0
    try:
        _serve(arguments)
    except (EOFError, ConnectionError):
        pass  # the trainer closed its end: we are no longer needed
    except BaseException as error:  # noqa: BLE001 - every kind of failure must reach the trainer
        status = 1
        _report(arguments.pipe, error)
    os._exit(status)  # the reading thread may be in the middle of a window that nobody wants


def _serve(arguments: WorkerArguments) -> None:
    pipe, buffers = arguments.pipe, arguments.ring.buffers()
    job: Job = arguments.jobs.get()[arguments.number]
    stats = ReadStats()
    free = list(range(SLOTS))
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as executor:
        messages = Messages(job.host(stats, executor), job.rounds)
        rows = 1
        while rows:
            while not free or pipe.poll(0):
                free.append(pipe.recv_bytes()[0])
            slot = free.pop(0)
            message = messages.next(buffers[slot])
            rows = len(message.ids)
            pipe.send_bytes(Header(slot, rows, len(message.starts), stats.bytes, message.states).pack())
        while True:
            pipe.recv_bytes()  # until the trainer closes its end: the last messages are in our memory


def _report(pipe: Connection, error: BaseException) -> None:
    try:
        pipe.send_bytes(failure(error).pack())
        while True:
            pipe.recv_bytes()  # the trainer reads it, then closes its end
    except (EOFError, OSError):
        pass


def _watch(trainer: int) -> None:
    """End this process when the trainer's ends. Its sentinel says so, unless a process that the trainer forked holds it."""
    parent = parent_process()
    sentinels = [] if parent is None else [parent.sentinel]
    while not wait(sentinels, WATCH_SECONDS):
        try:
            os.kill(trainer, 0)
        except ProcessLookupError:
            break
    os._exit(1)
