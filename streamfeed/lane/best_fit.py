"""Best-fit packing: whole samples side by side in rows, so that little is padded and nothing is cut that fits.

Best-fit decreasing (Johnson 1973, "Near-optimal bin packing algorithms") over a window of documents at a time. Where a
window has many short documents, neighbours go in bundles, which are put into rows as one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.lane.gathered import Gathered
from streamfeed.lane.pack import Packed
from streamfeed.lane.pieces import cut_up
from streamfeed.plan.order import KeyedOrders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["WINDOW_DOCUMENTS", "WINDOW_ROWS", "WINDOW_TOKENS", "BestFitPacker", "Fit", "best_fit", "bundles"]

WINDOW_DOCUMENTS = 256
"""Documents that are packed together, at least, whatever the number of lanes."""

WINDOW_ROWS = 64
WINDOW_TOKENS = 1 << 19
"""Rows, and tokens, that are packed together, at least. Of short documents it takes more rows for the last one, which
stays part empty, not to count; of short rows it takes more for what a window costs by itself not to count. It ends half
a row before that, so that the document that comes over it does not begin another row."""

MANY_PIECES = 4
"""Pieces a row, from which on short ones go in bundles: placing that many one by one takes longer than all else."""


class Fit(NamedTuple):
    """Where pieces begin in ``bins`` bins laid end to end: ``starts``, int64 ``[pieces]``."""

    starts: NDArray[np.int64]
    bins: int


def best_fit(lengths: NDArray[np.int64], room: int) -> Fit:
    """Put pieces into bins of ``room``: the longest first, each where least is left behind it; ties by number.

    ``lengths``: int64 ``[pieces]``, at least one, from 1 to ``room``.
    """
    order = (-lengths).argsort(kind="stable")
    ordered = lengths[order]
    alone = int(np.count_nonzero(ordered > room >> 1))  # no two of these share a bin
    # What is left in a bin, with its number in the low bits: one number to sort and to search by.
    bits = len(lengths).bit_length()
    left = ((room - ordered[:alone]) << bits) + np.arange(alone)
    least = int(ordered[-1]) << bits
    free = left[int(left.searchsorted(least)) :].tolist()  # bins that can still take a piece, sorted
    full, count, pop = room << bits, alone, free.pop
    places: list[int] = []
    place = places.append
    for size in (ordered[alone:] << bits).tolist():
        found = bisect_left(free, size)
        if found < len(free):
            code = pop(found)
        else:
            code = full + count
            count += 1
        place(code)
        code -= size
        if code >= least:
            insort(free, code)
    codes = np.asarray(places, dtype=np.int64)
    bins = np.concatenate((np.arange(alone), codes & ((1 << bits) - 1)))
    starts = np.empty(len(order), dtype=np.int64)
    starts[order] = bins * room
    starts[order[alone:]] += room - (codes >> bits)
    return Fit(starts, count)


def bundles(begins: NDArray[np.int64], lengths: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """Return the first piece of every bundle, int64, sorted: neighbours of up to ``room / 4`` tokens go together.

    A bundle's pieces begin within the same ``room / 2`` tokens, so that it fits a row with some room beside it. The
    last pieces stay single, one for every row and one token in 32: they fill what bundles leave.
    """
    cell = begins // (room // 2)
    apart = cell[1:] != cell[:-1]
    long = lengths > room // 4
    apart |= long[1:]
    apart |= long[:-1]
    total = int(begins[-1]) + int(lengths[-1])
    single = min(len(lengths) - total // room, int(begins.searchsorted(total - total // 32)))
    apart[max(0, single - 1) :] = True
    return np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(apart) + 1))


class BestFitPacker:
    """Packs windows of documents into rows of ``seq_len``; documents that are longer are cut into pieces first.

    The rows of a window are permuted by a key of ``seed``, ``lane`` and the number of rows before it, ``rows`` at the
    beginning: else the longest documents would come first.
    """

    def __init__(self, seq_len: int, seed: int, lane: int, rows: int) -> None:
        self._seq_len = seq_len
        self._orders = KeyedOrders("pack", seed, lane)
        self._rows = rows
        self._window = _Window()

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows of the windows that it completes."""
        done: list[Packed] = []
        start = 0
        tokens = max(WINDOW_ROWS, WINDOW_TOKENS // self._seq_len) * self._seq_len - self._seq_len // 2
        while (stop := self._window.full(run, start, tokens)) is not None:
            self._window.add(run, start, stop)
            done.append(self._pack(int(run.offsets[stop])))
            start = stop
        self._window.add(run, start, len(run))
        return done

    def flush(self) -> Packed | None:
        """Return the rows of what is held."""
        return self._pack(-1) if self._window.documents else None

    def _pack(self, end: int) -> Packed:
        window, self._window = self._window, _Window()
        seq_len = self._seq_len
        begins, lengths = cut_up(window.lengths(), seq_len)
        if len(lengths) * seq_len <= MANY_PIECES * window.tokens:
            starts, count, order = self._place(lengths)
            documents = starts[order]
        else:
            first, whole = bundles(begins, lengths, seq_len), begins
            begins, lengths = begins[first], np.add.reduceat(lengths, first)
            starts, count, order = self._place(lengths)
            documents = np.repeat(starts - begins, np.diff(first, append=len(whole))) + whole
            documents.sort()
        starts, lengths, begins = starts[order], lengths[order], begins[order]
        rows = np.arange(0, (count + 1) * seq_len, seq_len)
        bounds = starts.searchsorted(rows)
        filled = (starts + lengths)[bounds[1:] - 1] - rows[:-1]
        pieces = begins, begins + lengths, bounds
        ends = np.full(count, -1, dtype=np.int64)
        ends[-1] = end
        ids = Gathered(window.ids, *pieces)
        flags = Gathered(window.flags, *pieces) if window.flags else None
        return Packed(ids, seq_len, documents, 0, filled.astype(np.int32), flags, ends=ends)

    def _place(self, lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], int, NDArray[np.int64]]:
        """Return where pieces begin in rows laid end to end, the number of rows, and the pieces' order in them."""
        fit = best_fit(lengths, self._seq_len)
        row = self._orders.order(self._rows, fit.bins)
        self._rows += fit.bins
        starts = fit.starts + ((row - np.arange(fit.bins)) * self._seq_len)[fit.starts // self._seq_len]
        return starts, fit.bins, starts.argsort()


class _Window:
    """Documents that are packed together, whole, as they came in runs."""

    def __init__(self) -> None:
        self.ids: list[NDArray[np.int32]] = []
        self.flags: list[NDArray[np.uint8]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self.documents = 0
        self.tokens = 0

    def full(self, run: Run, start: int, tokens: int) -> int | None:
        """Return the document of ``run`` behind the one that completes the window; None where none does."""
        offsets = run.offsets
        goal = tokens - self.tokens + int(offsets[start])
        if self.documents + len(run) - start < WINDOW_DOCUMENTS or int(offsets[-1]) < goal:
            return None
        documents = np.cumsum(offsets[start + 1 :] > offsets[start:-1])
        at = max(
            int(documents.searchsorted(WINDOW_DOCUMENTS - self.documents)),
            int(offsets[start + 1 :].searchsorted(goal)),
        )
        return start + at + 1 if at < len(documents) else None

    def add(self, run: Run, start: int, stop: int) -> None:
        """Add documents ``start`` to ``stop - 1`` of ``run``."""
        offsets = run.offsets[start : stop + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        if begin == end:
            return
        lengths = offsets[1:] - offsets[:-1]
        if not lengths.all():
            lengths = lengths[lengths > 0]
        self.ids.append(run.ids[begin:end])
        if run.flags is not None:
            self.flags.append(run.flags[begin:end])
        self._lengths.append(lengths)
        self.documents += len(lengths)
        self.tokens += end - begin

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every document."""
        return np.concatenate(self._lengths)
