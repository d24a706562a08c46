"""Rows that are gathered from pieces of several arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.pack import Spans

__all__ = ["Gathered"]


class Gathered:
    """Rows of pieces of several arrays, which stay where they are until the rows are written.

    Row ``i`` is pieces ``bounds[i]`` to ``bounds[i + 1] - 1`` (``bounds`` int64 ``[rows + 1]``), side by side; a piece
    is what lies between ``begins`` and ``ends`` (int64 ``[pieces]``) of all ``parts`` laid end to end.
    """

    def __init__(
        self,
        parts: Sequence[NDArray[Any]],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
    ) -> None:
        size = parts[0].itemsize
        views = [part.view(np.uint8).data for part in parts]
        bases = np.cumsum([0, *map(len, views)])
        begins, ends = begins * size, ends * size
        first = bases.searchsorted(begins, side="right") - 1
        base = bases[first]
        sides = zip(first.tolist(), (begins - base).tolist(), (ends - base).tolist(), strict=True)
        cuts: list[memoryview | bytes] = [views[part][start:stop] for part, start, stop in sides]
        for index in np.flatnonzero(ends > bases[first + 1]).tolist():
            cuts[index] = _across(views, bases, int(begins[index]), int(ends[index]))
        self._cuts = cuts
        self._bounds: list[int] = bounds.tolist()
        self.tokens = int(bases[-1]) // size
        self._size = size
        self._lists: tuple[list[int], list[int]] | None = None
        self._hashed = (*views, begins.data, ends.data, bounds.data)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def chains(self, chain: int) -> list[int]:
        """Return the chained hash behind all rows, for every one of them: of the parts' tokens, and where they go."""
        digest = xxhash.xxh3_64(seed=chain)
        for data in self._hashed:
            digest.update(data)
        return [digest.intdigest()] * len(self)

    def write(self, rows: range, plane: NDArray[Any], place: range) -> None:
        """Write ``rows`` to the rows ``place`` of ``plane``, ``[rows, width]``, contiguous; leave what is behind."""
        cuts, bounds = self._cuts, self._bounds
        target, step = plane.reshape(-1).view(np.uint8).data, plane.strides[0]
        for row, to in zip(rows, place, strict=True):
            begin, end = bounds[row], bounds[row + 1]
            data = cuts[begin] if end - begin == 1 else b"".join(cuts[begin:end])
            target[to * step : to * step + len(data)] = data

    def spans(self, rows: range) -> Spans:
        """Return where the tokens of ``rows`` lie."""
        if self._lists is None:
            first_tokens, last = (np.asarray(part) // self._size for part in self._hashed[-3:-1])
            self._lists = first_tokens.tolist(), last.tolist()
        begins: list[int] = []
        ends: list[int] = []
        numbers: list[int] = []
        for number, row in enumerate(rows):
            first, stop = self._bounds[row], self._bounds[row + 1]
            begins += self._lists[0][first:stop]
            ends += self._lists[1][first:stop]
            numbers += [number] * (stop - first)
        return begins, ends, numbers


def _across(views: Sequence[memoryview], bases: NDArray[np.int64], begin: int, end: int) -> bytes:
    """Return what lies between ``begin`` and ``end`` of all ``views``, which begin at ``bases``."""
    index = int(bases.searchsorted(begin, side="right")) - 1
    found: list[memoryview] = []
    while begin < end:
        base, stop = int(bases[index]), min(end, int(bases[index + 1]))
        found.append(views[index][begin - base : stop - base])
        begin, index = stop, index + 1
    return b"".join(found)
