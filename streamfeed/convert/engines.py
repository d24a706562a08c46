"""Who runs tasks: this process, several of this machine, or a Ray cluster. The tasks and the bytes are the same."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import islice
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any, Protocol

from streamfeed.convert.work import Done, Task, Work, Worker
from streamfeed.encode.proof import thread_environment
from streamfeed.errors import ConfigError, StreamfeedError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Engine", "LocalEngine", "RayEngine"]

_AHEAD = 2
"""Tasks for each process that are handed out before they are needed."""


class Engine(Protocol):
    """Runs tasks in any order, on any number of processes."""

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Done]:
        """Yield what each task did, as they end; raises what one raises, and begins no others then."""


class LocalEngine:
    """``workers`` processes of this machine; with one, this process itself."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ConfigError(f"workers must be a whole number of at least 1, got {workers}")
        self._workers = workers

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Done]:
        """Yield what each task did; see :class:`Engine`. Raises :class:`WorkerError` where a process was killed."""
        if self._workers == 1:
            worker = Worker(work)
            yield from map(worker.do, tasks)
            return
        context = multiprocessing.get_context("forkserver")
        pool = ProcessPoolExecutor(self._workers, context, _begin, (work,))
        try:
            yield from _drawn(iter(tasks), self._workers, lambda task: pool.submit(_do, task))
        except BrokenProcessPool as error:
            raise WorkerError("a process that converts was killed; run it again: what is finished is kept") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


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
                import ray
            except ImportError as error:
                raise ConfigError("--engine ray needs Ray: pip install 'streamfeed[ray]'") from error
        self._ray = ray
        self._workers = workers

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Done]:
        """Yield what each task did; see :class:`Engine`."""
        ray = self._ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
        most = self._workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(num_cpus=1, max_retries=3)(_on_ray)
        shared = ray.put(work)
        coming = iter(tasks)
        waiting = [remote.remote(shared, task) for task in islice(coming, _AHEAD * most)]
        try:
            while waiting:
                (ready,), waiting = ray.wait(waiting, num_returns=1)
                yield ray.get(ready)
                waiting += [remote.remote(shared, task) for task in islice(coming, 1)]
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
