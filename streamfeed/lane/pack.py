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
    """Rows that one run completed.

    ``rows``: int32 ``[n, seq_len]``. ``starts``: int64, sorted, where documents start, as ``row * seq_len + column``; a
    row's own start is not among them unless a document starts there too. ``carried`` tokens of row 0 are from earlier
    runs.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64]
    carried: int


class ConcatPacker:
    """Cuts the concatenation of documents into rows; what does not fill a row is carried into the next run."""

    def __init__(self, seq_len: int) -> None:
        self._seq_len = seq_len
        self._carry = np.empty(0, dtype=np.int32)
        self._carry_starts = np.empty(0, dtype=np.int64)

    def feed(self, run: Run) -> Packed:
        """Add a run; return the rows that it completes (maybe none)."""
        carried = len(self._carry)
        ids = np.concatenate((self._carry, run.ids)) if carried else run.ids
        starts = np.concatenate((self._carry_starts, _starts(run) + carried))
        count = len(ids) // self._seq_len
        full = count * self._seq_len
        cut = int(starts.searchsorted(full))
        self._carry = ids[full:].copy()
        self._carry_starts = starts[cut:] - full
        return Packed(ids[:full].reshape(count, self._seq_len), starts[:cut], carried)

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
