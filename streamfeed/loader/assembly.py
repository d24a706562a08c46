"""Batches in small groups: what a batch costs besides copying is paid once a group."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.loader.memory import Batch, BatchMemory
from streamfeed.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from streamfeed.dataset.batch import BatchArrays
    from streamfeed.dataset.message import Layout
    from streamfeed.loader.columns import Columns
    from streamfeed.loader.memory import Slot
    from streamfeed.loader.provenance import Tracer
    from streamfeed.loader.reader import Filled, RankReader

__all__ = ["Assembled", "Assembler", "group_memory", "most_at_once"]

GROUP_BYTES = 4 << 20
"""Larger batches come alone: their copies are most of what they cost, and a batch that is kept keeps its group."""

MOST_BATCHES = 8


def most_at_once(rows: int, seq_len: int) -> int:
    """Return how many batches of ``rows`` rows may be assembled in one piece of memory."""
    return min(MOST_BATCHES, max(1, GROUP_BYTES // (3 * 8 * rows * seq_len)))


def group_memory(rows: int, seq_len: int, make: Callable[[tuple[int, ...]], Tensor], pieces: int) -> BatchMemory:
    """Return memory for as many batches at once, in ``pieces`` int64 tensors that ``make`` makes now."""
    count = most_at_once(rows, seq_len)
    made = [make(BatchMemory.shape(rows, seq_len, count)) for _ in range(pieces)]
    return BatchMemory(rows, seq_len, count, made)


class Assembled(NamedTuple):
    """A batch, with the workers' lanes at or before its last row as JSON.

    ``tokens`` of it count, ``empty_rows`` are of lanes that have ended.
    """

    batch: Batch
    tokens: int
    empty_rows: int
    states: tuple[bytes, ...]


class Assembler:
    """Batches of ``rows`` rows from ``reader``, padded with ``pad``; ``columns`` makes of them what a model takes.

    ``tracer`` tells them which records they are made of.
    Where the rows of several batches have arrived already they are assembled at once; nothing is ever waited for but
    the rows of the next batch. ``memory``: where to put them, in pieces of :func:`most_at_once` batches. ``stages`` are
    those of the thread that takes batches.
    """

    def __init__(
        self,
        reader: RankReader,
        rows: int,
        pad: int,
        layout: Layout,
        columns: Columns | None = None,
        memory: BatchMemory | None = None,
        stages: Stages | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._stage = (stages or Stages()).assemble
        self._reader = reader
        seq_len = layout.seq_len
        self._rows = rows
        self._seq_len = seq_len
        self._pad = pad
        self._most = most_at_once(rows, seq_len)
        self._nbytes = 0 if columns else 3 * 8 * rows * seq_len  # of a batch, where that is always the same
        self._alone = memory or BatchMemory(rows, seq_len)
        self._grouped = memory or BatchMemory(rows, seq_len, self._most)
        self._columns = columns
        self._tracer = tracer
        most = self._most * rows
        self._flags = np.empty((most, seq_len), dtype=np.uint8) if layout.flags else None
        self._values = np.empty(most, dtype=np.int64) if layout.values else None
        self._ready: deque[Assembled] = deque()
        self._taken = 0
        self._ended = False

    def states(self) -> tuple[bytes, ...]:
        """Return each worker's lanes' states, as JSON, at or before the last row read."""
        return self._reader.states()

    def next(self) -> Assembled | None:
        """Return the next batch; None when no row to come holds a token."""
        self._assemble()
        if not self._ready:
            return None
        self._taken += 1
        taken = self._ready.popleft()
        self._stage.count(1, self._nbytes or sum(column.nbytes for column in taken.batch.values()))
        return taken

    def ready(self, *, blank: bool = False) -> bool:
        """Say whether :meth:`next` has a batch without waiting; ``blank``: the answer once it is known to have none."""
        if self._ready:
            return True
        return blank if self._ended else self._reader.ready(self._rows, self._most)

    def known(self, *, wait: bool) -> tuple[int, bool]:
        """Return how many batches there are at least, from the first on, and whether there are no more.

        ``wait``: until there is one more than were handed out, or the end is known.
        """
        if wait:
            self._assemble()
        ready = self._taken + len(self._ready)
        return (ready, True) if self._ended else (max(ready, self._reader.sure(self._rows)), False)

    def empty(self) -> Assembled:
        """Return a batch of empty rows, for when no row to come holds a token: the rows of another rank go on."""
        slot = self._alone.take()
        arrays = self._arrays(slot, self._rows)
        filled = self._reader.blank(arrays, self._pad)
        return Assembled(self._made(slot, arrays, filled, 1)[0], 0, self._rows, self._reader.states())

    def _arrays(self, slot: Slot, rows: int) -> BatchArrays:
        return replace(
            slot.arrays.rows(0, rows),
            flags=None if self._flags is None else self._flags[:rows],
            values=None if self._values is None else self._values[:rows],
        )

    def _made(self, slot: Slot, arrays: BatchArrays, filled: Filled, count: int) -> Sequence[Batch]:
        """Return the first ``count`` batches, or more, of rows that are in."""
        batches: Sequence[Batch] = slot.batches
        if self._columns is not None:
            batches = self._columns.make(arrays, filled, count, slot.batches)
        return batches if self._tracer is None else self._tracer.trace(batches, filled, self._rows)

    def _assemble(self) -> None:
        """Make sure that a batch is ready, unless there are no more."""
        if not self._ready and not self._ended:
            with self._stage.busy:
                self._fill()

    def _fill(self) -> None:
        count = max(1, self._reader.arrived(self._rows, self._most))
        before = self._reader.states()
        slot = (self._alone if count == 1 else self._grouped).take()
        arrays = self._arrays(slot, count * self._rows)
        filled = self._reader.fill(arrays, self._pad)
        if filled is None:
            self._ended = True
            return
        by_batch = filled.lengths.reshape(count, self._rows)
        tokens = by_batch.sum(axis=1).tolist()
        if not tokens[-1] and not self._reader.has_more():
            while not tokens[-1]:
                tokens.pop()  # the stream ended inside the group
        after = self._reader.states()
        batches = self._made(slot, arrays, filled, len(tokens))
        for index, (batch, some) in enumerate(zip(batches, tokens, strict=False)):
            empty = 0 if some == by_batch.shape[1] * self._seq_len else int((by_batch[index] == 0).sum())
            self._ready.append(Assembled(batch, some, empty, after if index == count - 1 else before))
