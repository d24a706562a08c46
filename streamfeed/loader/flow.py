"""What all threads of one rank did: its trainer's, and its workers'."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from streamfeed.stages import NOTHING, Figures

__all__ = ["Flow"]


@dataclass(frozen=True, slots=True)
class Flow:
    """``trainer``: the process that takes batches, which without workers does all there is; ``workers``: the others."""

    trainer: Figures = NOTHING
    workers: tuple[Figures, ...] = ()

    def total(self) -> Figures:
        """Return what all of them did together."""
        return sum(self.workers, self.trainer)

    def since(self, before: Flow) -> Flow:
        """Return what was done since ``before``."""
        pairs = zip_longest(self.workers, before.workers, fillvalue=NOTHING)
        return Flow(self.trainer - before.trainer, tuple(now - then for now, then in pairs))
