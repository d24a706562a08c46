"""No packing: a sample is a row; optionally those of about the same length follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamfeed.lane.gathered import Gathered
from streamfeed.lane.pack import Flat, Packed
from streamfeed.lane.pieces import Pieces
from streamfeed.plan.order import order_key, permutation

if TYPE_CHECKING:
    from streamfeed.lane.runs import Run

__all__ = ["GROUP_ROWS", "ROWS_ALIKE", "GroupPacker", "SinglePacker"]

GROUP_ROWS = 512
"""Rows that are grouped by length together."""

ROWS_ALIKE = 16
"""Rows of about one length that follow each other in a lane."""


_NO_STARTS = np.empty(0, dtype=np.int64)
_NO_STARTS.flags.writeable = False


class SinglePacker:
    """A row for each sample, in order; samples longer than ``seq_len`` are cut into several rows."""

    def __init__(self, seq_len: int) -> None:
        self._seq_len = seq_len

    def feed(self, run: Run) -> list[Packed]:
        """Return the rows of a run."""
        pieces = Pieces.of(run, self._seq_len)
        if not len(pieces):
            return []
        lengths = pieces.lengths.astype(np.int32)
        ids = Flat(pieces.ids, self._seq_len, lengths)
        flags = None if pieces.flags is None else Flat(pieces.flags, self._seq_len, lengths)
        return [Packed(ids, self._seq_len, _NO_STARTS, 0, lengths, flags, pieces.values, pieces.ends)]

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
        held, count = self._held, self._count
        self._held, self._count = [], 0
        lengths = np.concatenate([part.lengths for part in held])
        turns = permutation(order_key(*self._key, self._rows), -(-count // ROWS_ALIKE))
        by_length = np.argsort(lengths, kind="stable")
        order = np.concatenate([by_length[turn * ROWS_ALIKE : (turn + 1) * ROWS_ALIKE] for turn in turns.tolist()])
        self._rows += count
        flags = [part.flags for part in held if part.flags is not None]
        values = [part.values for part in held if part.values is not None]
        stops = np.cumsum(lengths)[order]
        own = lengths[order]
        pieces = stops - own, stops, np.arange(count + 1)
        ends = np.full(count, -1, dtype=np.int64)
        ends[-1] = end
        return Packed(
            Gathered([part.ids for part in held], *pieces),
            self._seq_len,
            _NO_STARTS,
            0,
            own.astype(np.int32),
            Gathered(flags, *pieces) if flags else None,
            np.concatenate(values)[order] if values else None,
            ends,
        )
