"""Which records go into which shard: a function of counts and limits alone."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfeed.formats.marks import Counted
    from streamfeed.formats.protocol import Cursor

__all__ = ["Shard", "Stretch", "chains", "cut"]

FAR = 16 << 20
"""Bytes behind the last way in, from which on shards are made one after the other in one reading."""


class Stretch(NamedTuple):
    """Consecutive ``records`` of piece ``piece`` of the source, from ``cursor`` on."""

    piece: int
    cursor: Cursor
    records: int


class Shard(NamedTuple):
    """Shard ``number``: ``records`` records from record ``first`` of the source on, of ``nbytes`` bytes, about."""

    number: int
    first: int
    records: int
    nbytes: int
    stretches: tuple[Stretch, ...]


class _Whole:
    """All pieces, one behind the other."""

    def __init__(self, counts: Sequence[Counted]) -> None:
        self.counts = counts
        self.first = [0]
        self.bytes = [0]
        for one in counts:
            self.first.append(self.first[-1] + one.records)
            self.bytes.append(self.bytes[-1] + one.nbytes)

    @property
    def records(self) -> int:
        return self.first[-1]

    def piece(self, record: int) -> int:
        """Return the piece that holds ``record``: the last that begins at or before it."""
        return bisect_right(self.first, record, 0, len(self.counts)) - 1

    def bytes_before(self, record: int) -> int:
        if record >= self.records:
            return self.bytes[-1]
        piece = self.piece(record)
        return self.bytes[piece] + self.counts[piece].bytes_before(record - self.first[piece])

    def behind(self, first: int, nbytes: int) -> int:
        """Return the last record that lies no more than ``nbytes`` behind ``first``, at least one on."""
        behind = range(first + 2, self.records + 1)
        return first + 1 + bisect_right(behind, self.bytes_before(first) + nbytes, key=self.bytes_before)

    def stretches(self, first: int, stop: int) -> Iterator[Stretch]:
        piece = self.piece(first)
        while first < stop:
            inside = first - self.first[piece]
            records = min(stop, self.first[piece + 1]) - first
            if records:
                yield Stretch(piece, self.counts[piece].cursor(inside), records)
            first += records
            piece += 1


def cut(counts: Sequence[Counted], max_records: int | None, max_bytes: int | None) -> list[Shard]:
    """Cut all records, in order, into shards as full as the limits allow."""
    whole = _Whole(counts)
    shards: list[Shard] = []
    first = 0
    while first < whole.records:
        stop = whole.records if max_records is None else min(whole.records, first + max_records)
        if max_bytes is not None:
            stop = min(stop, whole.behind(first, max_bytes))
        nbytes = whole.bytes_before(stop) - whole.bytes_before(first)
        shards.append(Shard(len(shards), first, stop - first, nbytes, tuple(whole.stretches(first, stop))))
        first = stop
    return shards


def chains(shards: Sequence[Shard], counts: Sequence[Counted]) -> list[list[Shard]]:
    """Return the shards in runs that are made in one reading each.

    A shard follows the one before it where it begins in the same piece, and far from the last way into that.
    """
    found: list[list[Shard]] = []
    for shard in shards:
        begin = shard.stretches[0]
        counted = counts[begin.piece]
        far = begin.cursor.skip * (counted.nbytes // max(1, counted.records)) > FAR
        if found and far and found[-1][-1].stretches[-1].piece == begin.piece:
            found[-1].append(shard)
        else:
            found.append([shard])
    return found
