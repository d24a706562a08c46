"""Samples cut into pieces that fit a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.lane.runs import Run

__all__ = ["Pieces", "cut_up"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Consecutive pieces of samples; piece ``i`` is ``ids[begins[i]:begins[i] + lengths[i]]``, at least one token.

    ``ids`` int32, ``flags`` uint8 or None, ``begins`` and ``lengths`` int64 ``[pieces]``, ``values`` int64 ``[pieces]``
    or None.
    """

    ids: NDArray[np.int32]
    flags: NDArray[np.uint8] | None
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
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
        begins, own = cut_up(lengths, longest)
        sample = offsets.searchsorted(begins, side="right") - 1
        values = None if run.values is None else run.values[sample]
        return cls(run.ids, run.flags, begins, own, values)

    def part(self, start: int, stop: int) -> Pieces:
        """Return pieces ``start`` to ``stop - 1``, at least one, with only their ids."""
        begin, end = int(self.begins[start]), int(self.ends[stop - 1])
        return Pieces(
            self.ids[begin:end],
            None if self.flags is None else self.flags[begin:end],
            self.begins[start:stop] - begin,
            self.lengths[start:stop],
            None if self.values is None else self.values[start:stop],
        )


def cut_up(lengths: NDArray[np.int64], longest: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut samples of these ``lengths``, laid end to end, into pieces of at most ``longest``, the last of each shorter.

    Returns where pieces begin and how long they are, both int64 ``[pieces]``; a sample without tokens has none.
    """
    begins = lengths.cumsum()
    tokens = int(begins[-1]) if len(begins) else 0
    begins -= lengths
    if not tokens or (int(lengths.max()) <= longest and int(lengths.min()) > 0):
        return begins[:tokens], lengths[:tokens]
    counts = (lengths + (longest - 1)) // longest
    before = counts.cumsum()
    before -= counts
    pieces = np.repeat(begins - before * longest, counts)
    pieces += np.arange(0, len(pieces) * longest, longest)
    own = np.empty_like(pieces)
    np.subtract(pieces[1:], pieces[:-1], out=own[:-1])
    own[-1] = tokens - pieces[-1]
    return pieces, own
