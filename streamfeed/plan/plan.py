"""The plan: which lane reads what, for every epoch. Small to send, cheap to ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamfeed.config import RetryPolicy
from streamfeed.formats.shape import Shape
from streamfeed.plan.deal import Dealer
from streamfeed.plan.shards import ShardTable, Stride, Unit, UnitTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from streamfeed.config import HoldOut, OnError, Packing
    from streamfeed.plan.carried import CarriedMap

__all__ = ["Plan", "Rules", "SourceHands", "SourcePlan"]

LISTED_WINDOW_DOCUMENTS = 1024
LISTED_WINDOW_BYTES = 1 << 20
"""Without shuffling a window is only what is read at a time, so it is small."""


@dataclass(frozen=True)
class SourcePlan:
    """One source: its shards and units, what is read of them, and what opens its store (never shown or saved).

    ``shape`` is what is read of a record, and ``map`` the user's function. ``asked`` is what was listed, without
    secrets: URIs, and what else chose the shards or their format; empty where nobody says.
    """

    shards: ShardTable
    units: UnitTable
    shape: Shape
    weight: float
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    asked: Sequence[str | None] = ()
    map: CarriedMap | None = None
    taken: Shape = field(default_factory=Shape)
    """what the objective takes of what the user's function returns"""


@dataclass(frozen=True)
class Rules:
    """The settings that lanes obey, taken from the config once."""

    lanes: int
    seq_len: int
    seed: int
    shuffle_buffer: int
    window_bytes: int
    epochs: int | None
    on_error: OnError
    skip_budget: int
    packing: Packing = "concat"
    group_by_length: bool = False
    flags: bool = False
    """whether tokens have flags"""
    values: bool = False
    """whether samples have a value"""
    eos: bool = True
    """whether every sample ends by an EOS that is none of its text"""
    hold_out: HoldOut | None = None
    """which records are read; None: all of those in the plan"""

    def window_limits(self, lane: int, *, first: bool) -> tuple[int, int]:
        """Return how many documents and bytes a window of ``lane`` holds.

        The ``first`` window of a lane in an epoch is ``(lane + 1) / lanes`` of that, so that lanes turn their windows
        at different times and the first round needs little reading.
        """
        if self.shuffle_buffer == 0:
            return LISTED_WINDOW_DOCUMENTS, min(self.window_bytes, LISTED_WINDOW_BYTES)
        documents, nbytes = -(-self.shuffle_buffer // self.lanes), self.window_bytes
        if first:
            documents = -(-documents * (lane + 1) // self.lanes)
            nbytes = -(-nbytes * (lane + 1) // self.lanes)
        return max(1, documents), max(1, nbytes)


@dataclass(frozen=True)
class Plan:
    """What every rank and worker needs to host any lane: sources, rules, and the stream's fingerprint."""

    sources: Sequence[SourcePlan]
    rules: Rules
    fingerprint: dict[str, Any]

    @property
    def lanes(self) -> int:
        """The number of lanes, V."""
        return self.rules.lanes

    def versions(self) -> tuple[str, ...]:
        """Return a hash of the shards' versions for each source, empty where a store says none."""
        return tuple(source.shards.versions_digest() for source in self.sources)


class SourceHands:
    """The hands of one source in one process: shared by its lanes, so that an epoch is dealt once."""

    def __init__(self, plan: SourcePlan, rules: Rules, source: int) -> None:
        self._plan = plan
        self._dealer = Dealer(plan.units.nbytes, rules.lanes, rules.seed, source, shuffled=rules.shuffle_buffer > 0)
        self._first_strides = plan.units.first_strides()

    def hand(self, epoch: int, lane: int, *, whole: bool) -> NDArray[np.int64]:
        """Return the indices of the units that ``lane`` reads in ``epoch``; with ``whole``, all of the source."""
        if whole:
            return self._dealer.whole(self._first_strides, epoch, lane)
        return self._dealer.hand(epoch, lane)

    def unit(self, index: int, *, whole: bool) -> Unit:
        """Return unit ``index`` as the lane reads it: without its stride when it reads the source ``whole``."""
        shard = int(self._plan.units.shard[index])
        return Unit(
            url=self._plan.shards.url(shard),
            size=int(self._plan.shards.sizes[shard]),
            version=self._plan.shards.version(shard),
            kind=self._plan.shards.kind(shard),
            extent=self._plan.units.extent(index),
            stride=Stride() if whole else self._plan.units.stride(index),
        )
