"""Best-fit packing: whole samples side by side in rows, so that little is padded and nothing is cut that fits.

Best-fit decreasing (Johnson 1973, "Near-optimal bin packing algorithms") over a window of documents at a time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.lane.pack import Packed
from streamfeed.lane.pieces import Held, Pieces
from streamfeed.plan.order import order_key, permutation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["WINDOW_DOCUMENTS", "WINDOW_ROWS", "BestFitPacker", "Fit", "best_fit"]

WINDOW_DOCUMENTS = 256
"""Documents that are packed together, at least, whatever the number of lanes."""

WINDOW_ROWS = 64
"""Rows' worth of tokens that are packed together, at least: of short documents it takes more for the last row, which
stays part empty, not to count."""


_BITS = 32
_MASK = (1 << _BITS) - 1
"""Bits of a bin's number beside what is left in it."""


class Fit(NamedTuple):
    """Where pieces lie: ``bin`` and ``start`` in it, both int64 ``[pieces]``, of ``bins`` bins."""

    bin: NDArray[np.int64]
    start: NDArray[np.int64]
    bins: int


def best_fit(lengths: NDArray[np.int64], room: int) -> Fit:
    """Put pieces into bins of ``room``: the longest first, each where least is left behind it; ties by number.

    ``lengths``: int64 ``[pieces]``, from 1 to ``room``. Pieces of one length are placed together, so that short ones
    cost less.
    """
    order = np.argsort(-lengths, kind="stable")
    sizes = lengths[order].tolist()
    alone = int(np.count_nonzero(2 * lengths > room))  # no two of these share a bin
    bins = list(range(alone))
    starts = [0] * alone
    # What is left in each bin that is not full, with its number in the low bits; sorted.
    free = sorted((room - size << _BITS) + index for index, size in enumerate(sizes[:alone]) if size < room)
    count = at = alone
    while at < len(sizes):
        size = sizes[at]
        found = bisect_left(free, size << _BITS)
        if found < len(free):
            code = free.pop(found)
            space, index = code >> _BITS, code & _MASK
        else:
            space, index = room, count
            count += 1
        fits = True
        while fits:
            bins.append(index)
            starts.append(room - space)
            space -= size
            at += 1
            fits = space >= size and at < len(sizes) and sizes[at] == size  # this bin is the best for it as well
        if space:
            insort(free, (space << _BITS) + index)
    fit = Fit(np.empty(len(order), dtype=np.int64), np.empty(len(order), dtype=np.int64), count)
    fit.bin[order] = bins
    fit.start[order] = starts
    return fit


class BestFitPacker:
    """Packs windows of documents into rows of ``seq_len``; documents that are longer are cut into pieces first.

    The rows of a window are permuted by a key of ``seed``, ``lane`` and the number of rows before it, ``rows`` at the
    beginning: else the longest documents would come first.
    """

    def __init__(self, seq_len: int, seed: int, lane: int, rows: int) -> None:
        self._seq_len = seq_len
        self._key = ("pack", seed, lane)
        self._rows = rows
        self._held = Held()

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows of the windows that it completes."""
        pieces = Pieces.of(run, self._seq_len)
        done: list[Packed] = []
        start = 0
        while (stop := self._full(pieces, start)) is not None:
            self._held.add(pieces.part(start, stop))
            done.append(self._pack(int(pieces.ends[stop - 1])))
            start = stop
        self._held.add(pieces.part(start, len(pieces)))
        return done

    def flush(self) -> Packed | None:
        """Return the rows of what is held."""
        return self._pack(-1) if len(self._held) else None

    def _full(self, pieces: Pieces, start: int) -> int | None:
        """Return the piece behind the one that completes the window, itself the last of its document."""
        documents = np.cumsum(pieces.first[start:]) + self._held.documents
        if not len(documents) or documents[-1] < WINDOW_DOCUMENTS:
            return None
        tokens = np.cumsum(pieces.lengths[start:]) + self._held.tokens
        at = max(int(documents.searchsorted(WINDOW_DOCUMENTS)), int(tokens.searchsorted(WINDOW_ROWS * self._seq_len)))
        if at >= len(documents):
            return None
        following = np.flatnonzero(pieces.first[start + at + 1 :])
        return start + at + 1 + int(following[0]) if len(following) else len(pieces)

    def _pack(self, end: int) -> Packed:
        held, self._held = self._held, Held()
        lengths = held.lengths()
        fit = best_fit(lengths, self._seq_len)
        place = np.empty(fit.bins, dtype=np.int64)
        place[permutation(order_key(*self._key, self._rows), fit.bins)] = np.arange(fit.bins)
        self._rows += fit.bins
        starts = place[fit.bin] * self._seq_len + fit.start
        order = np.argsort(starts)
        laid = held.ordered(order)
        filled = np.bincount(place[fit.bin], weights=lengths, minlength=fit.bins).astype(np.int32)
        ends = np.full(fit.bins, -1, dtype=np.int64)
        ends[-1] = end
        return Packed(laid.ids, self._seq_len, starts[order], 0, filled, laid.flags, ends=ends)
