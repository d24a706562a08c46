"""Batches in small groups: what a batch costs besides copying is paid once a group."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.loader.memory import Batch, BatchMemory

if TYPE_CHECKING:
    from streamfeed.loader.reader import RankReader

__all__ = ["Assembled", "Assembler"]

GROUP_BYTES = 2 << 20
"""Larger batches come alone: their copies are most of what they cost, and a batch that is kept keeps its group."""

MOST_BATCHES = 4


class Assembled(NamedTuple):
    """A batch; ``tokens`` of it count, ``empty_rows`` are of lanes that have ended. ``states`` are the workers' lanes, as
    JSON, at or before its last row.
    """  # noqa: D205

    batch: Batch
    tokens: int
    empty_rows: int
    states: tuple[bytes, ...]


class Assembler:
    """Batches of ``rows`` rows of ``seq_len`` tokens from ``reader``, padded with ``pad``.

    Where the rows of several batches have arrived already they are assembled at once; nothing is ever waited for but the
    rows of the next batch.
    """

    def __init__(self, reader: RankReader, rows: int, seq_len: int, pad: int) -> None:
        self._reader = reader
        self._rows = rows
        self._pad = pad
        self._most = min(MOST_BATCHES, max(1, GROUP_BYTES // (3 * 8 * rows * seq_len)))
        self._alone = BatchMemory(rows, seq_len)
        self._grouped = BatchMemory(rows * self._most, seq_len)
        self._ready: deque[Assembled] = deque()

    def states(self) -> tuple[bytes, ...]:
        """Return each worker's lanes' states, as JSON, at or before the last row read."""
        return self._reader.states()

    def next(self) -> Assembled | None:
        """Return the next batch; None when no row to come holds a token."""
        if not self._ready:
            self._assemble()
        return self._ready.popleft() if self._ready else None

    def _assemble(self) -> None:
        count = self._most if self._reader.arrived() >= self._most * self._rows else 1
        before = self._reader.states()
        slot = (self._alone if count == 1 else self._grouped).take()
        lengths = self._reader.fill(slot.arrays, self._pad)
        if lengths is None:
            return
        tokens = lengths.reshape(count, self._rows)
        filled = np.count_nonzero(tokens, axis=1).tolist()
        if not filled[-1] and not self._reader.has_more():
            while not filled[-1]:
                filled.pop()  # the stream ended inside the group
        for index, full_rows in enumerate(filled):
            rows = slice(index * self._rows, (index + 1) * self._rows)
            batch = slot.batch if count == 1 else {name: tensor[rows] for name, tensor in slot.batch.items()}
            states = self._reader.states() if index == count - 1 else before
            self._ready.append(Assembled(batch, int(tokens[index].sum()), self._rows - full_rows, states))
