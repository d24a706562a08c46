"""A ring of pinned slots: each is filled, copied from, and filled again only once its copy has arrived.

The slots are the loader's pieces of memory, which it takes again when nobody holds a batch in them, and stages for the
columns that are made anew for every batch. Both are held here until the event of their copy has passed.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from streamfeed.device.engine import Arrival, Copy, Engine
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.memory import Batch

__all__ = ["PinnedRing", "Stage"]

ALIGNED = 64
"""Columns begin at multiples of this many bytes of a stage."""


class _Held(NamedTuple):
    """What a copy reads until it arrives."""

    arrival: Arrival
    columns: Batch
    stage: Stage | None


class PinnedRing:
    """Copies batches by ``engine`` from at most ``slots`` slots at a time."""

    def __init__(self, engine: Engine, slots: int) -> None:
        self._engine = engine
        self._slots = slots
        self._held: deque[_Held] = deque()
        self._stages: list[Stage] = []
        weakref.finalize(self, _settle, engine, self._held).atexit = False

    def lend_to(self, loader: StreamLoader) -> None:
        """Let ``loader`` put rows straight into pinned memory, all of it allocated now.

        One piece for each slot, and one more: the loader still holds the last batch while it fills the next.
        """
        loader.use_memory(lambda shape: self._engine.allocate(shape, torch.int64), self._slots + 1)

    def free(self) -> bool:
        """Say whether a slot is free, without waiting."""
        while self._held and self._held[0].arrival.query():
            self._let_go()
        return len(self._held) < self._slots

    def wait(self) -> None:
        """Wait until a slot is free."""
        while not self.free():
            self._held[0].arrival.synchronize()
            self._let_go()

    def begin(self, batch: Batch) -> Copy:
        """Begin to copy ``batch``, in a free slot; columns that are not pinned are staged first."""
        self.wait()
        loose = {name: column for name, column in batch.items() if not self._engine.is_pinned(column)}
        stage = self._take_stage() if loose else None
        try:
            columns = batch if stage is None else {**batch, **stage.put(loose)}
            copy = self._engine.copy(columns)
        except BaseException:
            if stage is not None:
                self._stages.append(stage)
            raise
        self._held.append(_Held(copy.arrival, columns, stage))
        return copy

    def hand_out(self, copy: Copy) -> Batch:
        """Return the batch, for use on the current stream."""
        self._engine.hand_over(copy)
        return copy.batch

    def settle(self) -> None:
        """Wait for all copies under way: no memory of the host is read any more."""
        self._engine.settle()
        while self._held:
            self._let_go()

    def _let_go(self) -> None:
        stage = self._held.popleft().stage
        if stage is not None:
            self._stages.append(stage)

    def _take_stage(self) -> Stage:
        return self._stages.pop() if self._stages else Stage(self._engine)


class Stage:
    """Pinned memory for the columns of one batch. It grows to powers of two, and so only a few times in a run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory: Tensor | None = None

    def put(self, columns: Batch) -> Batch:
        """Copy ``columns`` in; return them as they lie here."""
        sizes = [-(-column.nbytes // ALIGNED) * ALIGNED for column in columns.values()]
        if self._memory is None or len(self._memory) < sum(sizes):
            self._memory = self._engine.allocate((1 << (sum(sizes) - 1).bit_length(),), torch.uint8)
        placed: Batch = {}
        begin = 0
        for (name, column), size in zip(columns.items(), sizes, strict=True):
            room = self._memory[begin : begin + column.nbytes]
            placed[name] = room.view(column.dtype).view(column.shape).copy_(column)
            begin += size
        return placed


def _settle(engine: Engine, held: deque[_Held]) -> None:
    """Wait before the memory goes that copies under way still read."""
    if held:
        engine.settle()
    held.clear()
