"""Packing: how samples become rows. What all packers share, and rows of exactly ``seq_len`` tokens end to end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["ConcatPacker", "Flat", "Packed", "Packer", "Spans", "Tokens"]


Spans = tuple[int, int, int] | tuple[list[int], list[int], list[int] | None]
"""Consecutive tokens that rows are made of: where they begin, where they end, and in which of the rows asked for they
lie side by side; None where every row is one span. Of rows of one width: where the first begins, how much further the
next, and the width."""


class Tokens(Protocol):
    """What rows hold: ids, or flags."""

    tokens: int
    """how many there are"""

    def __len__(self) -> int:
        """Return the number of rows."""

    def chains(self, chain: int) -> list[int]:
        """Return the chained hash behind every row, ``chain`` being that before the first.

        Where rows were packed together, it is for all of them that of their tokens and places.
        """

    def write(self, rows: range, plane: NDArray[Any], place: range) -> None:
        """Write ``rows`` to the rows ``place`` of ``plane``, ``[rows, width]``, contiguous; leave what is behind."""

    def spans(self, rows: range) -> Spans:
        """Return where the tokens of ``rows`` lie in those of all rows, as these were fed to the packer."""


class Flat:
    """Rows that lie one behind the other in one array: ``width`` tokens each, or ``lengths`` where those differ."""

    def __init__(self, data: NDArray[Any], width: int, lengths: NDArray[np.int32] | None = None) -> None:
        self.data = data
        self.tokens = len(data)
        self._width = width
        self._bounds = None if lengths is None else [0, *np.cumsum(lengths).tolist()]

    def __len__(self) -> int:
        return len(self.data) // self._width if self._bounds is None else len(self._bounds) - 1

    def chains(self, chain: int) -> list[int]:
        """Return the chained hash behind every row: of its tokens and of all before."""
        bytes_, bounds = self.data.data, self._bounds
        if bounds is None:
            bounds = list(range(0, len(self.data) + 1, self._width))
        digest = xxhash.xxh3_64_intdigest
        return [chain := digest(bytes_[begin:end], chain) for begin, end in pairwise(bounds)]

    def write(self, rows: range, plane: NDArray[Any], place: range) -> None:
        """Write ``rows`` to the rows ``place`` of ``plane``."""
        if self._bounds is None:
            own = self.data.reshape(-1, self._width)[rows.start : rows.stop : rows.step]
            plane[place.start : place.stop : place.step, : self._width] = own
            return
        for row, to in zip(rows, place, strict=True):
            begin, end = self._bounds[row], self._bounds[row + 1]
            plane[to, : end - begin] = self.data[begin:end]

    def spans(self, rows: range) -> Spans:
        """Return where the tokens of ``rows`` lie."""
        width, bounds = self._width, self._bounds
        if bounds is None:
            return rows.start * width, rows.step * width, width
        return [bounds[row] for row in rows], [bounds[row + 1] for row in rows], None


@dataclass(frozen=True)
class Packed:
    """Consecutive rows that one run completed.

    ``ids``: int32, the rows' tokens: ``width`` each, or ``lengths`` (int32 ``[rows]``) where those differ. ``starts``:
    int64, sorted, where documents start, as ``row * width + column``; a row's own start is not among them unless a
    document starts there too. ``flags``: uint8, as ``ids``, and ``values``: int64 ``[rows]``, where samples have them.

    ``carried`` tokens of row 0 are from earlier runs; where it is negative, so many of the run's tokens are in rows
    before these. ``ends``: where rows do not follow each other in the run, int64 ``[rows]``, how many of its tokens are
    in rows up to and with each; -1 where a row's place is known only by all that were packed together.
    """

    ids: Tokens
    width: int
    starts: NDArray[np.int64]
    carried: int = 0
    lengths: NDArray[np.int32] | None = None
    flags: Tokens | None = None
    values: NDArray[np.int64] | None = None
    ends: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.ids)

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
        first = self._packed(row, starts[:cut], carried, marks)
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
        return [self._packed(ids[:full], starts[:cut], carried, None if flags is None else flags[:full])]

    def flush(self) -> Packed | None:
        """Return the last, partial row as it is (its length is the width), or None when nothing is carried."""
        if not len(self._carry):
            return None
        length = len(self._carry)
        last = self._packed(self._carry, self._carry_starts, length, self._carry_flags, width=length)
        self._clear()
        return last

    def _packed(
        self,
        ids: NDArray[np.int32],
        starts: NDArray[np.int64],
        carried: int,
        flags: NDArray[np.uint8] | None,
        width: int | None = None,
    ) -> Packed:
        width = width or self._seq_len
        marks = None if flags is None else Flat(flags, width)
        return Packed(Flat(ids, width), width, starts, carried, flags=marks)


def _starts(run: Run) -> NDArray[np.int64]:
    """Return where the run's documents start in its ids; a continued first document starts at 0 (it is a piece)."""
    begins = run.offsets[:-1]
    if "empty" in run.counts or "skipped" in run.counts:
        begins = begins[np.diff(run.offsets) > 0]
    return np.maximum(begins, 0)
