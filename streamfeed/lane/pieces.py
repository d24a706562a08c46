"""Samples cut into pieces that fit a row, gathered over runs, and laid into rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["Pieces", "laid"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Consecutive pieces of samples; piece ``i`` is ``ids[begins[i]:begins[i] + lengths[i]]``, at least one token.

    ``ids`` int32, ``flags`` uint8 or None, ``begins`` and ``lengths`` int64 ``[pieces]``, ``values`` int64 ``[pieces]``
    or None. ``first``: bool ``[pieces]``, whether a piece begins its sample.
    """

    ids: NDArray[np.int32]
    flags: NDArray[np.uint8] | None
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    first: NDArray[np.bool_]
    values: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def ends(self) -> NDArray[np.int64]:
        """How many of ``ids`` lie before the end of each piece."""
        return self.begins + self.lengths

    @classmethod
    def of(cls, run: Run, longest: int) -> Pieces:
        """Cut the samples of ``run`` into pieces of at most ``longest`` tokens: all but a sample's last are as long.

        What is left of a sample that was begun in earlier rows begins with a piece of its own.
        """
        offsets = np.maximum(run.offsets, 0)
        lengths = np.diff(offsets)
        counts = -(-lengths // longest)
        count = int(counts.sum())
        if count == len(lengths) and (lengths > 0).all():
            begins, own = offsets[:-1], lengths
            sample = np.arange(count)
            number = np.zeros(count, dtype=np.int64)
        else:
            sample = np.repeat(np.arange(len(lengths)), counts)
            number = np.arange(count) - np.repeat(np.cumsum(counts) - counts, counts)
            begins = offsets[sample] + number * longest
            own = np.minimum(longest, offsets[sample + 1] - begins)
        first = number == 0
        if len(first) and run.offsets[0] < 0:
            first[0] = False
        return cls(run.ids, run.flags, begins, own, first, None if run.values is None else run.values[sample])

    def part(self, start: int, stop: int) -> Pieces:
        """Return pieces ``start`` to ``stop - 1``, with only their ids."""
        if start >= stop:
            none = np.empty(0, dtype=np.int64)
            values = None if self.values is None else none
            return Pieces(self.ids[:0], None, none, none, np.empty(0, dtype=np.bool_), values)
        begin, end = int(self.begins[start]), int(self.ends[stop - 1])
        return Pieces(
            self.ids[begin:end],
            None if self.flags is None else self.flags[begin:end],
            self.begins[start:stop] - begin,
            self.lengths[start:stop],
            self.first[start:stop],
            None if self.values is None else self.values[start:stop],
        )

    @classmethod
    def joined(cls, parts: Sequence[Pieces]) -> Pieces:
        """Return all pieces of ``parts``, at least one, in order."""
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.ids) for part in parts[:-1])])
        flags = [part.flags for part in parts if part.flags is not None]
        values = [part.values for part in parts if part.values is not None]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate(flags) if flags else None,
            np.concatenate([part.begins + shift for part, shift in zip(parts, shifts, strict=True)]),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.first for part in parts]),
            np.concatenate(values) if values else None,
        )


def laid(
    pieces: Pieces, row: NDArray[np.int64], column: NDArray[np.int64], rows: int, width: int
) -> tuple[NDArray[np.int32], NDArray[np.uint8] | None]:
    """Copy each piece to its ``row`` and ``column`` of ``rows`` rows; zeros where there is none.

    Returns ids, int32 ``[rows, width]``, and flags, uint8 of the same shape.
    """
    ids = np.zeros(rows * width, dtype=np.int32)
    flags = None if pieces.flags is None else np.zeros(rows * width, dtype=np.uint8)
    begins, lengths = pieces.begins.tolist(), pieces.lengths.tolist()
    targets = (row * width + column).tolist()
    for begin, length, target in zip(begins, lengths, targets, strict=True):
        ids[target : target + length] = pieces.ids[begin : begin + length]
    if flags is not None and pieces.flags is not None:
        for begin, length, target in zip(begins, lengths, targets, strict=True):
            flags[target : target + length] = pieces.flags[begin : begin + length]
    return ids.reshape(rows, width), None if flags is None else flags.reshape(rows, width)
