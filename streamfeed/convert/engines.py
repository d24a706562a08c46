"""Who runs tasks: this process, several of this machine, or a Ray cluster. The tasks and the bytes are the same."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import islice
from multiprocessing import forkserver
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any, Protocol

from streamfeed.convert.work import Done, Task, Work, Worker
from streamfeed.encode.proof import thread_environment
from streamfeed.errors import ConfigError, StreamfeedError, WorkerError
from streamfeed.loader.heap import collect_seldom

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfeed.convert.settings import Target

__all__ = ["Engine", "LocalEngine", "RayEngine", "Session"]

_AHEAD = 2
"""Tasks for each process that are handed out before they are needed."""


class Session(Protocol):
    """Runs tasks of one conversion, in any order."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield what each task did, as they end; raises what one raises, and begins no others then."""


class Engine(Protocol):
    """Where tasks run."""

    def begin(self, work: Work) -> AbstractContextManager[Session]:
        """Return a context in which tasks of ``work`` run."""


class LocalEngine:
    """``workers`` processes of this machine; with one, this process itself.

    ``to`` is the format that will be written: what that takes seconds to import is imported once for all of them, from
    now on, while the source is still being listed.
    """

    def __init__(self, workers: int = 1, to: Target | None = None) -> None:
        if workers < 1:
            raise ConfigError(f"workers must be a whole number of at least 1, got {workers}")
        self._workers = workers
        if workers > 1 and to is not None:
            _context(to)
            forkserver.ensure_running()

    @contextmanager
    def begin(self, work: Work) -> Iterator[Session]:
        """Return a context in which tasks of ``work`` run."""
        session = _Here(work) if self._workers == 1 else _Processes(work, self._workers)
        try:
            yield session
        finally:
            session.close()


class _Here:
    """This process."""

    def __init__(self, work: Work) -> None:
        self._worker = Worker(work)

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        yield from map(self._worker.do, tasks)

    def close(self) -> None:
        pass


class _Processes:
    """Processes that are started when there is more than one task for them."""

    def __init__(self, work: Work, workers: int) -> None:
        self._work = work
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield what each task did; raises :class:`WorkerError` where a process was killed."""
        if len(tasks) <= 1:
            yield from _Here(self._work).run(tasks)
            return
        pool = self._pool = self._pool or self._start()
        try:
            yield from _drawn(iter(tasks), self._workers, lambda task: pool.submit(_do, task))
        except BrokenProcessPool as error:
            raise WorkerError("a process that converts was killed; run it again: what is finished is kept") from error

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._workers, _context(self._work.settings.to), _begin, (self._work,))

    def close(self) -> None:
        """End the processes; what they have not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _context(to: Target) -> multiprocessing.context.ForkServerContext:
    """Return how processes are started: forked off one that has imported what all of them need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, *_WRITERS[to]])
    return context


_WRITERS: dict[Target, tuple[str, ...]] = {
    "parquet": (),
    "tar": ("webdataset.writer",),
    "jsonl.zst": (),
    "tokens": ("streamfeed.convert.tokens",),
}
"""What a process of its own would take seconds to import, by the format that is written."""


def _drawn(tasks: Iterator[Task], workers: int, submit: Any) -> Iterator[Done]:  # noqa: ANN401
    """Hand tasks out a few ahead, and yield what they did as they end."""
    waiting: set[Future[Done]] = {submit(task) for task in islice(tasks, _AHEAD * workers)}
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for one in done:
            yield one.result()
            waiting |= {submit(task) for task in islice(tasks, 1)}


@cache
def _worker() -> list[Worker]:
    """Return the one worker of this process, in a list that is empty at first."""
    return []


def _begin(work: Work) -> None:
    """Become a worker process: with its own threads of encoding, and gone when the process that asked for it is."""
    os.environ.update(thread_environment(1))
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    collect_seldom()
    _worker().append(Worker(work))


def _do(task: Task) -> Done:
    return _worker()[0].do(task)


class RayEngine:
    """A Ray cluster: the one that ``RAY_ADDRESS`` or an enclosing job names, else one of this machine alone.

    ``workers`` bounds the tasks that run at a time, 0: as many as there are CPUs.
    """

    def __init__(self, workers: int = 0, ray: Any = None) -> None:  # noqa: ANN401
        if ray is None:
            try:
                ray = importlib.import_module("ray")
            except ImportError as error:
                raise ConfigError("--engine ray needs Ray: pip install 'streamfeed[ray]'") from error
        self._ray = ray
        self._workers = workers

    @contextmanager
    def begin(self, work: Work) -> Iterator[Session]:
        """Return a context in which tasks of ``work`` run."""
        ray = self._ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
        yield _OnRay(ray, work, self._workers or max(1, int(ray.cluster_resources().get("CPU", 1))))


class _OnRay:
    """A Ray cluster, with at most ``most`` tasks that run, and some that wait."""

    def __init__(self, ray: Any, work: Work, most: int) -> None:  # noqa: ANN401
        self._ray = ray
        self._work = ray.put(work)
        self._most = most
        self._remote = ray.remote(num_cpus=1, max_retries=3)(_on_ray)

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield what each task did; see :class:`Session`."""
        ray = self._ray
        coming = iter(tasks)
        waiting = [self._remote.remote(self._work, task) for task in islice(coming, _AHEAD * self._most)]
        try:
            while waiting:
                (ready,), waiting = ray.wait(waiting, num_returns=1)
                yield ray.get(ready)
                waiting += [self._remote.remote(self._work, task) for task in islice(coming, 1)]
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, StreamfeedError):
                raise cause from None
            raise WorkerError("a task failed on Ray", str(error)) from error
        except ray.exceptions.RayError as error:
            raise WorkerError(f"Ray failed ({type(error).__name__}); run it again: what is finished is kept") from error
        finally:
            for one in waiting:
                ray.cancel(one, force=False)


def _on_ray(work: Work, task: Task) -> Done:
    """Do a task in a process of Ray's, which keeps its worker for the next one of the same work."""
    held = _worker()
    if not held or held[0].work != work:
        os.environ.update(thread_environment(1))
        held[:] = [Worker(work)]
    return held[0].do(task)
