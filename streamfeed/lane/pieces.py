"""Samples cut into pieces that fit a row, and gathered over runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["Held", "Ordered", "Pieces"]


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

    def cut(self) -> list[memoryview]:
        """Return the ids of each piece, in place."""
        return _cut(self.ids.data, self.begins, self.ends)

    def cut_flags(self) -> list[memoryview]:
        """Return the flags of each piece, in place; nothing where there are none."""
        return [] if self.flags is None else _cut(self.flags.data, self.begins, self.ends)


class Held:
    """Pieces gathered over runs, until rows are made of them."""

    def __init__(self) -> None:
        self._parts: list[Pieces] = []
        self.documents = 0
        """documents that begin in them"""
        self.tokens = 0

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, pieces: Pieces) -> None:
        """Add ``pieces``."""
        if len(pieces):
            self._parts.append(pieces)
            self.documents += int(np.count_nonzero(pieces.first))
            self.tokens += len(pieces.ids)

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every piece."""
        return np.concatenate([part.lengths for part in self._parts])

    def ordered(self, order: NDArray[np.int64]) -> Ordered:
        """Return the pieces in ``order``, one behind the other."""
        at = order.tolist()
        ids = [cut for part in self._parts for cut in part.cut()]
        flags = [cut for part in self._parts for cut in part.cut_flags()]
        values = [part.values for part in self._parts if part.values is not None]
        return Ordered(
            np.frombuffer(b"".join([ids[index] for index in at]), dtype=np.int32),
            np.frombuffer(b"".join([flags[index] for index in at]), dtype=np.uint8) if flags else None,
            np.concatenate(values)[order] if values else None,
        )


class Ordered(NamedTuple):
    """Pieces laid end to end: ``ids`` int32, ``flags`` uint8 as many, ``values`` int64 ``[pieces]``, or None."""

    ids: NDArray[np.int32]
    flags: NDArray[np.uint8] | None
    values: NDArray[np.int64] | None


def _cut(view: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[memoryview]:
    return list(map(view.__getitem__, map(slice, begins.tolist(), ends.tolist())))
