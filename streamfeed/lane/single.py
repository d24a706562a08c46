"""No packing: a sample is a row; optionally those of about the same length follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamfeed.lane.pack import Packed
from streamfeed.lane.pieces import Pieces, laid
from streamfeed.plan.order import order_key, permutation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["GROUP_ROWS", "ROWS_ALIKE", "GroupPacker", "SinglePacker"]

GROUP_ROWS = 512
"""Rows that are grouped by length together."""

ROWS_ALIKE = 16
"""Rows of about one length that follow each other in a lane."""


class SinglePacker:
    """A row for each sample, in order; samples longer than ``seq_len`` are cut into several rows."""

    def __init__(self, seq_len: int) -> None:
        self._seq_len = seq_len

    def feed(self, run: Run) -> list[Packed]:
        """Return the rows of a run."""
        pieces = Pieces.of(run, self._seq_len)
        return [_rows(pieces, np.arange(len(pieces)), pieces.ends, self._seq_len)] if len(pieces) else []

    def flush(self) -> Packed | None:
        """Return None: nothing is held."""
        return None


class GroupPacker:
    """As :class:`SinglePacker`, of every :data:`GROUP_ROWS` rows those of about one length together.

    Which lengths come first is drawn by a key of ``seed`` and the number of rows before, the same for every lane: so
    lanes, whose rows a batch takes in turn, have about the same lengths at a time. ``rows`` is that number at the
    beginning.
    """

    def __init__(self, seq_len: int, seed: int, rows: int) -> None:
        self._seq_len = seq_len
        self._key = ("group", seed)
        self._rows = rows
        self._held: list[Pieces] = []
        self._count = 0

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows of the groups that it completes."""
        pieces = Pieces.of(run, self._seq_len)
        done: list[Packed] = []
        start = 0
        while self._count + len(pieces) - start >= GROUP_ROWS:
            stop = start + GROUP_ROWS - self._count
            self._hold(pieces, start, stop)
            done.append(self._group(int(pieces.ends[stop - 1])))
            start = stop
        self._hold(pieces, start, len(pieces))
        return done

    def flush(self) -> Packed | None:
        """Return the rows of what is held."""
        return self._group(-1) if self._held else None

    def _hold(self, pieces: Pieces, start: int, stop: int) -> None:
        if start < stop:
            self._held.append(pieces.part(start, stop))
            self._count += stop - start

    def _group(self, end: int) -> Packed:
        pieces = Pieces.joined(self._held)
        self._held, self._count = [], 0
        count = len(pieces)
        alike = -(-count // ROWS_ALIKE)
        turns = permutation(order_key(*self._key, self._rows), alike)
        by_length = np.argsort(pieces.lengths, kind="stable")
        order = np.concatenate([by_length[turn * ROWS_ALIKE : (turn + 1) * ROWS_ALIKE] for turn in turns.tolist()])
        self._rows += count
        row = np.empty(count, dtype=np.int64)
        row[order] = np.arange(count)
        ends = np.full(count, -1, dtype=np.int64)
        ends[-1] = end
        return _rows(pieces, row, ends, self._seq_len)


def _rows(pieces: Pieces, row: NDArray[np.int64], ends: NDArray[np.int64], width: int) -> Packed:
    """Return piece ``i`` as row ``row[i]``."""
    zeros = np.zeros(len(pieces), dtype=np.int64)
    ids, flags = laid(pieces, row, zeros, len(pieces), width)
    lengths = np.empty(len(pieces), dtype=np.int32)
    lengths[row] = pieces.lengths
    values = None
    if pieces.values is not None:
        values = np.empty(len(pieces), dtype=np.int64)
        values[row] = pieces.values
    return Packed(ids, np.empty(0, dtype=np.int64), 0, lengths, flags, values, ends)
