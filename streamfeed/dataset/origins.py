"""Which records the rows of a message are made of: worked out for all of its rows at once, and as bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.encode.ranges import ranges
from streamfeed.lane.gathered import Gathered
from streamfeed.lane.origins import RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.lane import Block
    from streamfeed.lane.origins import Fed, SampleRecords
    from streamfeed.lane.pack import Spans

__all__ = ["PIECE", "Gatherer", "Origins"]

PIECE = ("row", "begin", "end", "token", "number", "first", "count")
"""What is told of a piece of a row: columns ``begin`` to ``end - 1`` of ``row`` are tokens from ``token`` on of the
``number``-th sample made of records ``first`` to ``first + count - 1`` of a table."""

_ROW, _FIRST, _COUNT = PIECE.index("row"), PIECE.index("first"), PIECE.index("count")
_HEAD = struct.Struct("<3q")


class Origins(NamedTuple):
    """Which records rows are made of: ``pieces``, int32 ``[pieces, 7]``, see :data:`PIECE`, sorted by row and column.

    ``records``: int64 ``[records, 6]``, see :data:`~streamfeed.lane.origins.RECORD`.
    """

    pieces: NDArray[np.int32]
    records: NDArray[np.int64]

    @classmethod
    def none(cls) -> Origins:
        """Return those of no rows."""
        return cls(np.empty((0, len(PIECE)), dtype=np.int32), np.empty((0, len(RECORD)), dtype=np.int64))

    @classmethod
    def join(cls, parts: Sequence[Origins], rows: int) -> Origins:
        """Return those of the first ``rows`` rows that ``parts`` tell of, each of other rows."""
        if not parts:
            return cls.none()
        pieces = np.concatenate([part.pieces for part in parts])
        sizes = [len(part.records) for part in parts]
        pieces[:, _FIRST] += np.repeat(np.cumsum([0, *sizes[:-1]]), [len(part.pieces) for part in parts]).astype("i4")
        pieces = pieces[pieces[:, _ROW].argsort(kind="stable")]
        stop = int(pieces[:, _ROW].searchsorted(rows))
        return cls(pieces[:stop], np.concatenate([part.records for part in parts]))

    def of(self, first: int, stop: int) -> Origins:
        """Return those of rows ``first`` to ``stop - 1``, as views."""
        begin, end = self.pieces[:, _ROW].searchsorted((first, stop))
        return Origins(self.pieces[begin:end], self.records)

    @property
    def apart(self) -> bool:
        """Whether each piece has a record of its own, in the same order."""
        numbers = np.arange(len(self.pieces))
        return len(self.records) == len(numbers) and bool(
            (self.pieces[:, _FIRST] == numbers).all() and (self.pieces[:, _COUNT] == 1).all()
        )

    def placed(self, rows: range, place: range, *, apart: bool) -> Origins:
        """Return those of ``rows``, as rows ``place``; with only their own records if these are known to be ``apart``."""
        begin, end = self.pieces[:, _ROW].searchsorted((rows.start, rows.stop))
        pieces, records = self.pieces[begin:end].copy(), self.records
        if apart:
            records = records[begin:end]
            pieces[:, _FIRST] = np.arange(len(pieces))
        turn, rest = np.divmod(pieces[:, _ROW] - rows.start, rows.step)
        pieces[:, _ROW] = place.start + turn * place.step
        return Origins(pieces[rest == 0], records) if rows.step > 1 else Origins(pieces, records)

    def behind(self, states: bytes) -> bytes:
        """Return ``states`` and these as one piece of bytes."""
        head = _HEAD.pack(len(states), len(self.pieces), len(self.records))
        return b"".join((head, states, self.pieces.tobytes(), self.records.tobytes()))

    @classmethod
    def split(cls, data: bytes) -> tuple[bytes, Origins]:
        """Return what :meth:`behind` put together; the arrays are views."""
        states, pieces, records = _HEAD.unpack_from(data)
        begin = _HEAD.size + states
        middle = begin + 4 * len(PIECE) * pieces
        words = np.frombuffer(data, dtype=np.int32, count=len(PIECE) * pieces, offset=begin)
        longs = np.frombuffer(data, dtype=np.int64, count=len(RECORD) * records, offset=middle)
        return data[_HEAD.size : begin], cls(words.reshape(-1, len(PIECE)), longs.reshape(-1, len(RECORD)))


class Gatherer:
    """Gathers where the rows of messages come from, lane by lane.

    Rows that were packed from many documents are looked at once, all of them, since each has parts of any of these;
    others message by message, since there may be as few as one in a block.
    """

    def __init__(self) -> None:
        self._strips = _Strips()
        self._placed: list[Origins] = []
        self._whole: dict[int, tuple[Block, Origins, bool]] = {}

    def add(self, lane: int, block: Block, rows: range, place: range) -> None:
        """Add ``rows`` of a block of ``lane``, which are rows ``place`` of the message."""
        if not isinstance(block.packed.ids, Gathered):
            self._strips.add(block, rows, place)
            return
        kept = self._whole.get(lane)
        if kept is None or kept[0] is not block:
            strips, every = _Strips(), range(len(block))
            strips.add(block, every, every)
            found = strips.origins()
            kept = self._whole[lane] = block, found, found.apart
        self._placed.append(kept[1].placed(rows, place, apart=kept[2]))

    def origins(self, rows: int) -> Origins:
        """Return those of the first ``rows`` rows of the message, and begin the next."""
        parts, self._placed = self._placed, []
        if self._strips.spans:
            parts.append(self._strips.origins())
            self._strips = _Strips()
        return Origins.join(parts, rows)


class _Strips:
    """Rows of some blocks, and the samples that they are cut from, all laid end to end so that they are cut at once."""

    def __init__(self) -> None:
        self.spans: list[Spans] = []
        self._places: list[range] = []
        self._shifts: list[int] = []
        self._samples = _Samples()
        self._laid = 0

    def add(self, block: Block, rows: range, place: range) -> None:
        """Lay ``rows`` of a block behind those before."""
        origin, spans = block.origin, block.packed.ids.spans(rows)
        assert origin is not None
        low, high = origin.begin + int(spans.begins.min()), origin.begin + int(spans.ends.max())
        shift = self._laid - low
        for fed in origin.fed:
            if fed.begin < high and fed.end > low:
                self._samples.add(fed, low, high, shift)
        self.spans.append(spans)
        self._places.append(place)
        self._shifts.append(shift + origin.begin)
        self._laid += high - low

    def origins(self) -> Origins:
        """Return where all these rows come from, in the order in which they were added."""
        counts = [len(spans.row) for spans in self.spans]
        shift = np.repeat(self._shifts, counts)
        first, step = (np.repeat([getattr(one, name) for one in self._places], counts) for name in ("start", "step"))
        row = first + step * np.concatenate([spans.row for spans in self.spans])
        begins = np.concatenate([spans.begins for spans in self.spans]) + shift
        ends = np.concatenate([spans.ends for spans in self.spans]) + shift
        return self._samples.cut(row, begins, ends)


class _Samples:
    """Samples laid end to end: where each begins, and what it is made of."""

    def __init__(self) -> None:
        self._begins: list[NDArray[np.int64]] = []
        self._lows: list[int] = []
        self._made: list[SampleRecords] = []

    def add(self, fed: Fed, low: int, high: int, shift: int) -> None:
        """Lay the samples of ``fed`` with tokens from ``low`` to ``high`` where these are with ``shift`` added."""
        offsets, at = fed.offsets, fed.begin
        first, last = 0, len(offsets) - 1
        if low > at:
            first = int(offsets.searchsorted(low - at, side="right")) - 1
        if high < fed.end:
            last = int(offsets.searchsorted(high - at))
        self._begins.append(offsets[first:last] + (at + shift))
        self._lows.append(max(at, low) + shift)
        self._made.append(fed.records.part(first, last))

    def cut(self, row: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Origins:
        """Cut the tokens from ``begins`` to ``ends``, of the rows ``row``, where samples begin."""
        true = np.concatenate(self._begins)
        at = true.copy()
        heads = np.cumsum([0, *map(len, self._begins[:-1])])
        at[heads] = self._lows  # a sample's first tokens may be in rows before, where something else is laid
        first = at.searchsorted(begins, side="right") - 1
        counts = at.searchsorted(ends) - first
        span, sample = np.repeat(np.arange(len(row)), counts), ranges(first, counts)
        begin = np.maximum(begins[span], at[sample])
        end = np.minimum(ends[span], np.append(at[1:], ends.max())[sample])
        some = end > begin
        if not some.all():  # samples without tokens
            span, sample, begin, end = span[some], sample[some], begin[some], end[some]
        pieces = np.empty((len(span), len(PIECE)), dtype=np.int32)
        pieces[:, 0] = row[span]
        pieces[:, 1] = column = (_columns(row, ends - begins) - begins)[span] + begin
        pieces[:, 2] = column + (end - begin)
        pieces[:, 3] = begin - true[sample]
        pieces[:, 4] = np.concatenate([made.number for made in self._made])[sample]
        return self._with_records(pieces, sample)

    def _with_records(self, pieces: NDArray[np.int32], sample: NDArray[np.int64]) -> Origins:
        """Return ``pieces`` of these samples with their records: one for each, unless samples are of many."""
        if all(made.document is not None for made in self._made):
            records = np.concatenate([made.records[made.document] for made in self._made])[sample]
            pieces[:, _FIRST] = np.arange(len(pieces))
            pieces[:, _COUNT] = 1
            return Origins(pieces, records)
        tables: dict[int, int] = {}
        parts: list[NDArray[np.int64]] = []
        firsts: list[NDArray[np.int64]] = []
        counts: list[int] = []
        total = 0
        for made in self._made:
            known = tables.get(id(made.records))
            if known is None:
                known = tables[id(made.records)] = total
                parts.append(made.records)
                total += len(made.records)
            own = np.zeros(len(made.number), dtype=np.int64) if made.document is None else made.document
            firsts.append(known + own)
            counts.append(len(made.records) if made.document is None else 1)
        pieces[:, _FIRST] = np.concatenate(firsts)[sample]
        pieces[:, _COUNT] = np.repeat(counts, [len(made.number) for made in self._made])[sample]
        return Origins(pieces, np.concatenate(parts))


def _columns(row: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return in which column of its row each span begins: behind those of the same row before it."""
    before = np.cumsum(lengths) - lengths
    heads = np.concatenate(([True], row[1:] != row[:-1]))
    return before - np.repeat(before[heads], np.diff(np.append(np.flatnonzero(heads), len(row))))
