"""Packing: how samples become rows. What all packers share, and rows of exactly ``seq_len`` tokens end to end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["ConcatPacker", "Packed", "Packer"]


@dataclass(frozen=True)
class Packed:
    """Consecutive rows that one run completed.

    ``ids``: int32, the rows' tokens, one row behind the other: ``width`` each, or ``lengths`` (int32 ``[rows]``) where
    those differ. ``starts``: int64, sorted, where documents start, as ``row * width + column``; a row's own start is
    not among them unless a document starts there too. ``flags``: uint8, as ``ids``, and ``values``: int64 ``[rows]``,
    where samples have them.

    ``carried`` tokens of row 0 are from earlier runs; where it is negative, so many of the run's tokens are in rows
    before these. ``ends``: where rows do not follow each other in the run, int64 ``[rows]``, how many of its tokens are
    in rows up to and with each; -1 where a row's place is known only by all that were packed together.
    """

    ids: NDArray[np.int32]
    width: int
    starts: NDArray[np.int64]
    carried: int = 0
    lengths: NDArray[np.int32] | None = None
    flags: NDArray[np.uint8] | None = None
    values: NDArray[np.int64] | None = None
    ends: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.ids) // self.width if self.lengths is None else len(self.lengths)

    @cached_property
    def bounds(self) -> list[int]:
        """Where each row begins in ``ids``, and where the last one ends; rows are asked for a few at a time."""
        if self.lengths is None:
            return list(range(0, len(self.ids) + 1, self.width))
        return [0, *np.cumsum(self.lengths).tolist()]

    def reached(self, row: int) -> int:
        """Return how many tokens of the run are in rows up to and with ``row``; -1 where that is not known."""
        if self.ends is not None:
            return int(self.ends[row])
        return (row + 1) * self.width - self.carried


class Packer(Protocol):
    """Turns runs into rows; a pure function of the samples, however they are cut into runs."""

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows that it completes (maybe none)."""

    def flush(self) -> Packed | None:
        """Return the last rows, once there is no more run; None where nothing is held."""


FEW_ROWS = 8
"""A run of fewer rows is cheaper to copy behind what was carried than to hand out in two parts."""


class ConcatPacker:
    """Cuts the concatenation of documents into rows; what does not fill a row is carried into the next run."""

    def __init__(self, seq_len: int) -> None:
        self._seq_len = seq_len
        self._clear()

    def _clear(self) -> None:
        self._carry = np.empty(0, dtype=np.int32)
        self._carry_starts = np.empty(0, dtype=np.int64)
        self._carry_flags: NDArray[np.uint8] | None = None

    def feed(self, run: Run) -> list[Packed]:
        """Add a run; return the rows that it completes, in at most two parts (maybe none).

        Only the row that completes what was carried is copied together, the others are views of the run's ids.
        """
        carried, ids, flags, starts = len(self._carry), run.ids, run.flags, _starts(run)
        if not carried:
            return self._cut(ids, flags, starts, 0)
        starts = np.concatenate((self._carry_starts, starts + carried))
        rest = self._seq_len - carried  # of the row that was begun
        if len(ids) < FEW_ROWS * self._seq_len:
            return self._cut(np.concatenate((self._carry, ids)), self._joined(flags), starts, carried)
        row = np.concatenate((self._carry, ids[:rest]))
        marks = None if flags is None else self._joined(flags[:rest])
        cut = int(starts.searchsorted(self._seq_len))
        first = Packed(row, self._seq_len, starts[:cut], carried, flags=marks)
        behind = None if flags is None else flags[rest:]
        return [first, *self._cut(ids[rest:], behind, starts[cut:] - self._seq_len, -rest)]

    def _joined(self, flags: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
        if flags is None or self._carry_flags is None:
            return flags
        return np.concatenate((self._carry_flags, flags))

    def _cut(
        self, ids: NDArray[np.int32], flags: NDArray[np.uint8] | None, starts: NDArray[np.int64], carried: int
    ) -> list[Packed]:
        """Cut ``ids`` into rows and carry the rest."""
        count = len(ids) // self._seq_len
        full = count * self._seq_len
        cut = int(starts.searchsorted(full))
        self._carry = ids[full:].copy()
        self._carry_starts = starts[cut:] - full
        self._carry_flags = None if flags is None else flags[full:].copy()
        if not count:
            return []
        marks = None if flags is None else flags[:full]
        return [Packed(ids[:full], self._seq_len, starts[:cut], carried, flags=marks)]

    def flush(self) -> Packed | None:
        """Return the last, partial row as it is (its length is the width), or None when nothing is carried."""
        if not len(self._carry):
            return None
        length = len(self._carry)
        last = Packed(self._carry, length, self._carry_starts, length, flags=self._carry_flags)
        self._clear()
        return last


def _starts(run: Run) -> NDArray[np.int64]:
    """Return where the run's documents start in its ids; a continued first document starts at 0 (it is a piece)."""
    begins = run.offsets[:-1]
    if "empty" in run.counts or "skipped" in run.counts:
        begins = begins[np.diff(run.offsets) > 0]
    return np.maximum(begins, 0)
