"""The worker processes of a loader over all of its starts, and what they have told of themselves."""

from __future__ import annotations

import os
import weakref
from itertools import zip_longest
from typing import TYPE_CHECKING

from streamfeed.loader.advice import check_shared_memory
from streamfeed.loader.pool import Listener, RemoteWorker, start_workers, stop_workers
from streamfeed.loader.report import Waited
from streamfeed.loader.ring import ring_bytes
from streamfeed.machine import Machine
from streamfeed.stages import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import BaseContext

    from streamfeed.loader.job import Job
    from streamfeed.loader.profile import Profile
    from streamfeed.stages import Figures
    from streamfeed.stats import ReadStats

__all__ = ["Crew"]


class Crew:
    """Workers that are started anew for every pass; ``stats`` are those of this process, and of all that have ended.

    What they record goes to ``profile``, if there is one. They end when the crew is collected as garbage, if not
    before.
    """

    def __init__(self, stats: ReadStats, profile: Profile | None = None) -> None:
        self.workers: list[RemoteWorker] = []
        self._stats = stats
        self._listener = Listener(stats.stages, profile)
        self._waited_before: tuple[Waited, ...] = ()
        self._figures_before: tuple[Figures, ...] = ()
        self._finalizer = weakref.finalize(self, stop_workers, self.workers, os.getpid())

    def start(self, context: BaseContext, jobs: Sequence[Job]) -> list[RemoteWorker]:
        """Start a worker for every job; raises :class:`ConfigError` where what they share does not fit any more."""
        check_shared_memory(sum(ring_bytes(job.rows, job.layout) for job in jobs), Machine.look())
        self.workers.extend(start_workers(context, jobs, self._listener))
        return list(self.workers)

    def stop(self) -> None:
        """End all workers, and keep their figures."""
        stop_workers(self.workers, os.getpid())
        self._stats.bytes += sum(worker.bytes_read for worker in self.workers)
        self._stats.retries += sum(worker.retries for worker in self.workers)
        self._waited_before, self._figures_before = self.waited, self.figures
        self.workers.clear()

    @property
    def bytes_read(self) -> int:
        """Bytes of storage read so far."""
        return self._stats.bytes + sum(worker.bytes_read for worker in self.workers)

    @property
    def retries(self) -> int:
        """Requests repeated so far."""
        return self._stats.retries + sum(worker.retries for worker in self.workers)

    @property
    def waited(self) -> tuple[Waited, ...]:
        """Who waited for whom so far, by worker."""
        pairs = zip_longest(self._waited_before, (worker.waited for worker in self.workers), fillvalue=Waited())
        return tuple(Waited(a.trainer_s + b.trainer_s, a.worker_s + b.worker_s) for a, b in pairs)

    @property
    def figures(self) -> tuple[Figures, ...]:
        """What the stages of each worker did so far, by worker."""
        pairs = zip_longest(self._figures_before, (worker.figures() for worker in self.workers), fillvalue=NOTHING)
        return tuple(before + now for before, now in pairs)
