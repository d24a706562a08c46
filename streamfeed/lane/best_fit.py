"""Best-fit packing: whole samples side by side in rows, so that little is padded and nothing is cut that fits.

Best-fit decreasing (Johnson 1973, "Near-optimal bin packing algorithms") over a window of documents at a time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.lane.pack import Packed
from streamfeed.lane.pieces import cut_up, joined
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
    """Where pieces begin in ``bins`` bins laid end to end: ``starts``, int64 ``[pieces]``."""

    starts: NDArray[np.int64]
    bins: int


def best_fit(lengths: NDArray[np.int64], room: int) -> Fit:
    """Put pieces into bins of ``room``: the longest first, each where least is left behind it; ties by number.

    ``lengths``: int64 ``[pieces]``, from 1 to ``room``. Pieces of one length are placed together, so that short ones
    cost less.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    alone = int(np.count_nonzero(2 * ordered > room))  # no two of these share a bin
    sizes = ordered[alone:].tolist()
    least = sizes[-1] if sizes else 0
    count = alone
    # What is left in each bin that can still take a piece, with its number in the low bits; sorted.
    left = ((room - ordered[:alone]) << _BITS) + np.arange(alone)
    free = np.sort(left[left >= max(1, least) << _BITS]).tolist()
    places: list[int] = []  # where each piece begins, in bins laid end to end
    place, at = places.append, 0
    while at < len(sizes):
        size = sizes[at]
        found = bisect_left(free, size << _BITS)
        if found < len(free):
            code = free.pop(found)
            space, index = code >> _BITS, code & _MASK
        else:
            space, index = room, count
            count += 1
        place((index + 1) * room - space)
        space -= size
        at += 1
        while space >= size and at < len(sizes) and sizes[at] == size:  # the best bin for the next one as well
            place((index + 1) * room - space)
            space -= size
            at += 1
        if space >= least:
            insort(free, (space << _BITS) + index)
    starts = np.empty(len(order), dtype=np.int64)
    starts[order] = np.concatenate((np.arange(alone) * room, np.asarray(places, dtype=np.int64)))
    return Fit(starts, count)


class BestFitPacker:
    """Packs windows of documents into rows of ``seq_len``; documents that are longer are cut into pieces first.

    The rows of a window are permuted by a key of ``seed``, ``lane`` and the number of rows before it, ``rows`` at the
    beginning: else the longest documents would come first.
    """

    def __init__(self, seq_len: int, seed: int, lane: int, rows: int) -> None:
        self._seq_len = seq_len
        self._key = ("pack", seed, lane)
        self._rows = rows
        self._window = _Window()

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows of the windows that it completes."""
        done: list[Packed] = []
        start = 0
        while (stop := self._window.full(run, start, WINDOW_ROWS * self._seq_len)) is not None:
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
        begins, lengths = cut_up(window.lengths(), self._seq_len)
        fit = best_fit(lengths, self._seq_len)
        place = np.empty(fit.bins, dtype=np.int64)
        place[permutation(order_key(*self._key, self._rows), fit.bins)] = np.arange(fit.bins)
        self._rows += fit.bins
        bins, columns = np.divmod(fit.starts, self._seq_len)
        rows = place[bins]
        starts = rows * self._seq_len + columns
        order = np.argsort(starts)
        ids, flags = window.ordered(begins, begins + lengths, order)
        filled = np.bincount(rows, weights=lengths, minlength=fit.bins).astype(np.int32)
        ends = np.full(fit.bins, -1, dtype=np.int64)
        ends[-1] = end
        return Packed(ids, self._seq_len, starts[order], 0, filled, flags, ends=ends)


class _Window:
    """Documents that are packed together, whole, as they came in runs."""

    def __init__(self) -> None:
        self._ids: list[NDArray[np.int32]] = []
        self._flags: list[NDArray[np.uint8]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self.documents = 0
        self.tokens = 0

    def full(self, run: Run, start: int, tokens: int) -> int | None:
        """Return the document of ``run`` behind the one that completes the window; None where none does."""
        if self.documents + len(run) - start < WINDOW_DOCUMENTS:
            return None
        behind = run.offsets[start + 1 :] - run.offsets[start]
        documents = np.cumsum(np.diff(run.offsets[start:]) > 0)
        at = max(
            int(documents.searchsorted(WINDOW_DOCUMENTS - self.documents)),
            int(behind.searchsorted(tokens - self.tokens)),
        )
        return start + at + 1 if at < len(behind) else None

    def add(self, run: Run, start: int, stop: int) -> None:
        """Add documents ``start`` to ``stop - 1`` of ``run``."""
        lengths = np.diff(run.offsets[start : stop + 1])
        lengths = lengths[lengths > 0]
        if not len(lengths):
            return
        own = slice(int(run.offsets[start]), int(run.offsets[stop]))
        self._ids.append(run.ids[own])
        if run.flags is not None:
            self._flags.append(run.flags[own])
        self._lengths.append(lengths)
        self.documents += len(lengths)
        self.tokens += own.stop - own.start

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every document."""
        return np.concatenate(self._lengths)

    def ordered(
        self, begins: NDArray[np.int64], ends: NDArray[np.int64], order: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8] | None]:
        """Return the pieces of all ids that begin and end there, in ``order``, end to end; their flags, too."""
        ids = joined(self._ids, begins, ends, order)
        return ids, joined(self._flags, begins, ends, order) if self._flags else None
