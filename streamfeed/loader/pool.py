"""Worker processes: started, listened to, and stopped whatever happens."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import types
from collections import deque
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext, ForkServerContext
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import ConfigError, WorkerError
from streamfeed.loader.report import Waited
from streamfeed.loader.ring import Ring, SharedObject
from streamfeed.loader.wire import Header, read_failure
from streamfeed.loader.worker import WorkerArguments, main
from streamfeed.stages import Figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.process import BaseProcess

    from streamfeed.dataset.message import Message
    from streamfeed.loader.job import Job
    from streamfeed.loader.profile import Profile
    from streamfeed.stages import Stages

__all__ = [
    "START_METHOD",
    "Listener",
    "RemoteWorker",
    "cause_of_end",
    "start_workers",
    "stop_workers",
    "warm_up",
    "without_main",
]

START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""Neither the trainer's threads nor its locks are inherited, and workers share the pages of what they import."""

STOP_SECONDS = 1.5
"""How long workers may take to stop by themselves, which is a matter of milliseconds, before they are killed."""

_main_lock = threading.Lock()


def warm_up(start_method: str | None) -> BaseContext:
    """Return the context; begin to start the fork server, which then imports what workers need while we go on.

    Raises :class:`ConfigError` where this system has no such start method.
    """
    methods = multiprocessing.get_all_start_methods()
    if start_method is not None and start_method not in methods:
        raise ConfigError(f"start_method must be one of {', '.join(methods)} here, got {start_method!r}")
    context = multiprocessing.get_context(start_method or START_METHOD)
    if isinstance(context, ForkServerContext):
        from multiprocessing import forkserver

        context.set_forkserver_preload(["streamfeed.loader.fork_server"])
        forkserver.ensure_running()
    return context


class Listener(NamedTuple):
    """What the trainer notes when it takes messages: its own ``stages``, and what workers recorded, if they do."""

    stages: Stages
    profile: Profile | None = None


class RemoteWorker:
    """A channel to a worker process."""

    def __init__(self, process: BaseProcess, pipe: Connection, ring: Ring, number: int, listener: Listener) -> None:
        self._listener = listener
        self._receiving = listener.stages.receive
        self._work = b""
        self._trainer_ns = 0
        self._process = process
        self._pipe = pipe
        self._buffers = ring.buffers()
        self._number = number
        self._held: deque[int] = deque()
        self.bytes_read = 0
        self.retries = 0

    def receive(self) -> Message:
        """Wait for the next message. Raises what the worker raised, or :class:`WorkerError` when it died."""
        before = self._receiving.starved.ns
        try:
            with self._receiving.starved:
                data = self._next_bytes()
        finally:
            self._trainer_ns += self._receiving.starved.ns - before
        with self._receiving.busy:
            header = Header.unpack(data)
            if header.slot < 0:
                raise read_failure(header, self._number)
            self._held.append(header.slot)
            self.bytes_read = header.bytes_read
            self.retries = header.retries
            self._work = header.work
            message = self._buffers[header.slot].read(header.rows, header.starts, header.payload)
        self._receiving.count(1, message.ids.nbytes)
        if self._listener.profile is not None:
            self._listener.profile.worker(self._number, header.spans)
        return message

    def figures(self) -> Figures:
        """Return what the worker's stages did, up to its last message that was taken."""
        return Figures.of(self._work)

    @property
    def waited(self) -> Waited:
        """Who waited for whom."""
        return Waited(self._trainer_ns / 1e9, self.figures()["send"].blocked_ns / 1e9)

    def ready(self) -> bool:
        """Say whether a message, or the news of a death, has arrived."""
        try:
            return self._pipe.poll(0)
        except (EOFError, ConnectionError):
            return True

    def _next_bytes(self) -> bytes:
        if not self._pipe.poll(0):
            wait([self._pipe, self._process.sentinel])
        try:
            if self._pipe.poll(0):
                return self._pipe.recv_bytes()
        except (EOFError, ConnectionError):
            pass
        self._process.join(STOP_SECONDS)
        raise WorkerError(
            f"worker {self._number} (pid {self._process.pid}) died: {cause_of_end(self._process.exitcode)}"
        )

    def release(self) -> None:
        """Let the worker write the oldest slot again."""
        with contextlib.suppress(ConnectionError):  # a worker that died is reported when its next message is asked for
            self._pipe.send_bytes(bytes([self._held.popleft()]))

    def close(self) -> None:
        """Close the pipe, which stops the worker; safe to call twice. For the process that started the worker only."""
        if self._pipe.closed:
            return
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # also where a process that was forked here holds a copy of our end
        self._pipe.close()

    def end(self, until: float) -> bool:
        """Wait until the monotonic clock shows ``until``, and say whether the worker is gone."""
        self._process.join(max(0.0, until - time.monotonic()))
        return self._process.exitcode is not None

    def kill(self) -> None:
        """End the worker by force: it has nothing to clean up."""
        self._process.kill()


def start_workers(context: BaseContext, jobs: Sequence[Job], listener: Listener) -> list[RemoteWorker]:
    """Start a process for every job: all of them, or none when that fails."""
    ends = [context.Pipe(duplex=True) for _ in jobs]
    ours = [pair[0] for pair in ends]
    inherits = context.get_start_method() == "fork"
    shared = SharedObject.put(context, list(jobs))
    workers: list[RemoteWorker] = []
    try:
        for job, (our_end, their_end) in zip(jobs, ends, strict=True):
            ring = Ring.allocate(context, job.rows, job.layout)
            others = [*ours, *(pair[1] for pair in ends[job.worker + 1 :])] if inherits else []
            arguments = WorkerArguments(shared, job.worker, ring, their_end, os.getpid(), others, job.threads)
            process = context.Process(target=main, args=(arguments,), daemon=True, name=f"streamfeed-{job.worker}")  # type: ignore[attr-defined]
            with without_main():
                process.start()
            their_end.close()
            workers.append(RemoteWorker(process, our_end, ring, job.worker, listener))
    except BaseException:
        stop_workers(workers, os.getpid())
        raise
    return workers


def stop_workers(workers: Sequence[RemoteWorker], owner: int) -> None:
    """Stop all of ``workers``, by force where that takes too long; does nothing in a process that inherited them."""
    if os.getpid() != owner:
        return
    for worker in workers:
        worker.close()
    until = time.monotonic() + STOP_SECONDS
    late = [worker for worker in workers if not worker.end(until)]
    for worker in late:
        worker.kill()
    for worker in late:
        worker.end(until + STOP_SECONDS)


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Keep new processes from importing the user's script again: workers need nothing of it.

    multiprocessing would run it as ``__mp_main__`` in every worker: seconds for ``import torch``, and an endless chain
    of processes where it has no ``if __name__ == "__main__"``.
    """
    with _main_lock:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def cause_of_end(code: int | None) -> str:
    """Say in words how a process with exit code ``code`` ended."""
    if code is None:
        return "it closed its pipe and does not end"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = "; the system may have been out of memory" if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exit code {code}"
