"""Which records the rows of a message are made of: told in raw form, and worked out only for rows that one asks about.

A worker tells what it fed to its lanes' packers and where the tokens of rows lie in it; both are there anyway. Looking
up samples and records for every row would cost more than a tenth of encoding short documents.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfeed.lane.lane import Block, Lane
    from streamfeed.lane.origins import Fed, Table
    from streamfeed.lane.pack import Spans

__all__ = ["Ledgers", "PieceOrigin", "RowOrigins", "Telling", "Told"]

_HEAD = struct.Struct("<q")

_Take = tuple[int, int, int, int, int, "Spans"]
"""Rows of a message: lane, how many of its tokens lie before the block they are of, first row, step to the next, how
many there are, and where their tokens lie in the block (see :data:`~streamfeed.lane.pack.Spans`)."""


class Told(NamedTuple):
    """Where the rows of a message come from: ``takes`` of them, and ``news`` by lane of what its packer was fed."""

    takes: Sequence[_Take]
    news: Sequence[tuple[int, Fed]]

    def behind(self, states: bytes) -> bytes:
        """Return ``states`` and this as one piece of bytes."""
        return b"".join((_HEAD.pack(len(states)), states, pickle.dumps((self.takes, self.news), protocol=5)))

    @classmethod
    def split(cls, data: bytes) -> tuple[bytes, Told]:
        """Return what :meth:`behind` put together."""
        end = _HEAD.size + _HEAD.unpack_from(data)[0]
        return data[_HEAD.size : end], cls(*pickle.loads(memoryview(data)[end:]))  # noqa: S301 - from our own worker


class Telling:
    """What a host has to tell with its next message."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._takes: list[_Take] = []

    def take(self, lane: int, block: Block, rows: range, place: range) -> None:
        """Note that rows ``place`` of the message are ``rows`` of a block of ``lane``."""
        spans = block.packed.ids.spans(rows)
        self._takes.append((lane, block.begin, place.start, place.step, len(place), spans))

    def told(self) -> Told:
        """Return it, and begin anew."""
        takes, self._takes = self._takes, []
        news = [(lane.number, lane.ledger.tell()) for lane in self._lanes if lane.ledger is not None]
        return Told(takes, [(lane, fed) for lane, fed in news if fed[0]])


class PieceOrigin(NamedTuple):
    """Columns ``begin`` to ``end - 1`` of a row are tokens ``token`` and following of a sample.

    It is the ``number``-th that was made of ``records``, each as :data:`~streamfeed.lane.origins.RECORD` says.
    """

    begin: int
    end: int
    token: int
    number: int
    records: list[list[int]]


class _Part(NamedTuple):
    """What a lane's packer was fed from its token ``begin`` to ``end - 1``, as it was told at once.

    ``tables`` are the newest of every source before that.
    """

    begin: int
    end: int
    fed: Fed
    tables: dict[int, Table]

    def runs(self) -> Iterator[tuple[int, int, int, Table]]:
        """Yield each run's first token and the one behind its last, of the lane; the first one's number in a table."""
        numbers, new = self.fed
        tables, told = dict(self.tables), iter(new)
        for begin, end, at, source in zip(*[iter(numbers)] * 4, strict=True):
            if source < 0:
                own, table = next(told)
                tables[own] = table
            yield begin, end, at, tables[max(source, ~source)]


class Ledgers:
    """What the packers of some lanes were fed, by lane, as far back as rows to come need it; built from messages."""

    def __init__(self) -> None:
        self._fed: dict[int, list[_Part]] = {}
        self._tables: dict[int, dict[int, Table]] = {}

    def read(self, told: Told) -> RowOrigins:
        """Take what the next message tells; return where its rows come from."""
        for lane, fed in told.news:
            numbers, new = fed
            tables = self._tables.get(lane, {})
            self._fed.setdefault(lane, []).append(_Part(numbers[0], numbers[-3], fed, tables))
            self._tables[lane] = {**tables, **dict(new)} if new else tables
        lows: dict[int, int] = {}
        for lane, low, *_ in told.takes:
            lows.setdefault(lane, low)
        for lane, low in lows.items():
            parts = self._fed[lane]
            if parts[0].end <= low:  # a new list: rows of earlier messages still hold the old one
                self._fed[lane] = [part for part in parts if part.end > low]
        return RowOrigins(told.takes, {lane: self._fed[lane] for lane in lows})


class RowOrigins:
    """Where the rows of one message come from."""

    def __init__(self, takes: Sequence[_Take], fed: dict[int, list[_Part]]) -> None:
        self._takes = takes
        self._fed = fed

    def pieces(self, row: int) -> list[PieceOrigin]:
        """Return the pieces of ``row`` of the message, by column; none where its lane has ended."""
        found: list[PieceOrigin] = []
        for lane, low, first, step, count, spans in self._takes:
            turn, rest = divmod(row - first, step)
            if not rest and 0 <= turn < count:
                column = 0
                for begin, end in _of_row(turn, spans):
                    found += _cut(self._fed[lane], low + begin, low + end, column)
                    column += end - begin
        return found


def _of_row(row: int, spans: Spans) -> Sequence[tuple[int, int]]:
    """Return from where to where the tokens of one of the rows lie."""
    begins, ends, more = spans
    if isinstance(begins, int):
        assert isinstance(ends, int)
        assert isinstance(more, int)
        return [(begins + row * ends, begins + row * ends + more)]
    assert not isinstance(ends, int)
    assert not isinstance(more, int)
    if more is None:
        return [(begins[row], ends[row])]
    return [(begin, end) for begin, end, number in zip(begins, ends, more, strict=True) if number == row]


def _cut(parts: Sequence[_Part], begin: int, end: int, column: int) -> Iterator[PieceOrigin]:
    """Cut tokens ``begin`` to ``end - 1`` of a lane, which lie from ``column`` on, where samples begin."""
    for part in parts:
        if part.begin >= end:
            return
        if part.end <= begin:
            continue
        for first, behind, at, table in part.runs():
            stop = min(end, behind)
            if begin >= stop:
                continue
            sample = int(table.offsets.searchsorted(begin - first + at, side="right")) - 1
            while begin < stop:
                start = first - at + int(table.offsets[sample])
                cut = min(stop, first - at + int(table.offsets[sample + 1]))
                if cut > begin:  # or it has no tokens
                    yield PieceOrigin(column, column + cut - begin, begin - start, *_made_of(table, sample))
                    column += cut - begin
                    begin = cut
                sample += 1


def _made_of(table: Table, sample: int) -> tuple[int, list[list[int]]]:
    """Return the number of a sample among those made of the same records, and these."""
    if table.number is None:
        return 0, [table.records[sample].tolist()]
    if table.document is None:
        return int(table.number[sample]), table.records.tolist()
    return int(table.number[sample]), [table.records[table.document[sample]].tolist()]
