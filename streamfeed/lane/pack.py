"""Packing: rows of exactly ``seq_len`` tokens out of one document behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["ConcatPacker", "Packed"]


@dataclass(frozen=True, slots=True)
class Packed:
    """Consecutive rows that one run completed.

    ``rows``: int32 ``[n, seq_len]``. ``starts``: int64, sorted, where documents start, as ``row * seq_len + column``; a
    row's own start is not among them unless a document starts there too. ``carried`` tokens of row 0 are from earlier
    runs; where it is negative, so many of the run's tokens are in rows before these.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64]
    carried: int


FEW_ROWS = 8
"""A run of fewer rows is cheaper to copy behind what was carried than to hand out in two parts."""


class ConcatPacker:
    """Cuts the concatenation of documents into rows; what does not fill a row is carried into the next run."""

    def __init__(self, seq_len: int) -> None:
        self._seq_len = seq_len
        self._carry = np.empty(0, dtype=np.int32)
        self._carry_starts = np.empty(0, dtype=np.int64)

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows that it completes, in at most two parts (maybe none).

        Only the row that completes what was carried is copied together, the others are views of the run's ids.
        """
        carried, ids, starts = len(self._carry), run.ids, _starts(run)
        if not carried:
            return self._cut(ids, starts, 0)
        starts = np.concatenate((self._carry_starts, starts + carried))
        rest = self._seq_len - carried  # of the row that was begun
        if len(ids) < FEW_ROWS * self._seq_len:
            return self._cut(np.concatenate((self._carry, ids)), starts, carried)
        row = np.concatenate((self._carry, ids[:rest])).reshape(1, -1)
        cut = int(starts.searchsorted(self._seq_len))
        return [Packed(row, starts[:cut], carried), *self._cut(ids[rest:], starts[cut:] - self._seq_len, -rest)]

    def _cut(self, ids: NDArray[np.int32], starts: NDArray[np.int64], carried: int) -> list[Packed]:
        """Cut ``ids`` into rows and carry the rest."""
        count = len(ids) // self._seq_len
        full = count * self._seq_len
        cut = int(starts.searchsorted(full))
        self._carry = ids[full:].copy()
        self._carry_starts = starts[cut:] - full
        return [Packed(ids[:full].reshape(count, self._seq_len), starts[:cut], carried)] if count else []

    def flush(self) -> Packed | None:
        """Return the last, partial row as it is (``rows`` is ``[1, length]``), or None when nothing is carried."""
        if not len(self._carry):
            return None
        last = Packed(self._carry.reshape(1, -1), self._carry_starts, len(self._carry))
        self._carry = np.empty(0, dtype=np.int32)
        self._carry_starts = np.empty(0, dtype=np.int64)
        return last


def _starts(run: Run) -> NDArray[np.int64]:
    """Return where the run's documents start in its ids; a continued first document starts at 0 (it is a piece)."""
    begins = run.offsets[:-1]
    if run.empties is not None:
        begins = begins[np.diff(run.offsets) > 0]
    return np.maximum(begins, 0)
