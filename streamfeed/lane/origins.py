"""Which records documents, samples and rows are made of: kept only where somebody asks.

Every document of a window remembers its record, every run its documents. What packers do needs no memory: they take the
tokens of the runs in order and drop none, so that the place of a row's tokens in all that was fed says whose they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.mapping import Origins
    from streamfeed.lane.pack import Packed
    from streamfeed.lane.records import UnitRecords
    from streamfeed.lane.runs import Run

__all__ = ["RECORD", "Fed", "Ledger", "Marks", "Table"]

RECORD = ("source", "epoch", "unit", "record", "seek", "skip")
"""What is kept of a record, int64 each: ``unit`` is its number in the source's table, ``record`` the ordinal in it,
``seek`` and ``skip`` a cursor at the record."""


class Marks:
    """The records of a window's documents, as they are read from a source in an epoch."""

    def __init__(self, source: int, epoch: int) -> None:
        self._head = (source, epoch)
        self._rows: list[list[int]] = []  # unit, record, seek, skip of the first of so many that follow each other

    def one(self, unit: int, records: UnitRecords) -> None:
        """Note that the record taken last became a document."""
        seek, skip = records.cursor
        self._add(unit, records.record - 1, seek, skip - 1, 1)

    def run(self, unit: int, records: UnitRecords, texts: Sequence[object], kept: Sequence[object]) -> None:
        """Note that of the records taken last, with these ``texts``, those ``kept`` became documents."""
        seek, skip = records.cursor
        count = len(texts)
        record, skip = records.record - count, skip - count
        if len(kept) == count:
            self._add(unit, record, seek, skip, count)
            return
        left = iter(kept)
        wanted = next(left, None)
        for i, text in enumerate(texts):
            if text is wanted:
                self._add(unit, record + i, seek, skip + i, 1)
                wanted = next(left, None)

    def _add(self, unit: int, record: int, seek: int, skip: int, count: int) -> None:
        if self._rows:
            last = self._rows[-1]
            more = last[4]
            if last[:4] == [unit, record - more, seek, skip - more]:
                last[4] += count
                return
        self._rows.append([unit, record, seek, skip, count])

    def table(self, order: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Return the records in the order in which the documents are used, int64 ``[documents, 6]``."""
        rows = np.asarray(self._rows, dtype=np.int64).reshape(-1, 5)
        counts = rows[:, 4]
        found = np.empty((int(counts.sum()), len(RECORD)), dtype=np.int64)
        found[:, :2] = self._head
        found[:, 2:] = np.repeat(rows[:, :4], counts, axis=0)
        further = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
        found[:, 3] += further
        found[:, 5] += further
        return found if order is None else found[order]


class Table(NamedTuple):
    """The samples of a run as it was encoded, and their records (int64 ``[documents, 6]``, see :data:`RECORD`).

    Sample ``i`` is tokens ``offsets[i]`` to ``offsets[i + 1] - 1``, the ``number[i]``-th made of ``document[i]``.
    Without ``number`` every document is one sample; without ``document`` a function made the samples of all at once.
    """

    offsets: NDArray[np.int64]
    records: NDArray[np.int64]
    document: NDArray[np.int64] | None = None
    number: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls, offsets: NDArray[np.int64], records: NDArray[np.int64], origins: Origins | None, *, batched: bool
    ) -> Table:
        """Return the table of samples that come from ``records`` as ``origins`` say."""
        if origins is None:
            return cls(offsets, records)
        return cls(offsets, records, None if batched else origins.document, origins.sample)


Fed = tuple[list[int], list[tuple[int, Table]]]
"""Runs that were fed to a packer: four numbers of each, and the tables that were not told before, with their sources.

A run's tokens begin behind so many others of the lane, and end behind so many; the first is this token of the newest
table of its source; and the source's number, or its complement where that table is the next of those told."""


class Ledger:
    """What a lane's packer was fed, as it is to be told, and how much of it is in rows."""

    def __init__(self) -> None:
        # Flat: of a mixture there is a run for every document, and a tuple for each keeps the garbage collector busy.
        self._numbers: list[int] = []
        self._new: list[tuple[int, Table]] = []
        self._tables: dict[int, Table] = {}
        self._fed = 0
        self._packed = 0

    def feed(self, run: Run) -> None:
        """Note a run, before the packer gets it."""
        begin, source, table = self._fed, run.source, run.table
        self._fed = end = begin + len(run.ids)
        if end == begin:
            return
        if self._tables.get(source) is table:
            self._numbers += (begin, end, run.at, source)
            return
        assert table is not None
        self._tables[source] = table
        self._new.append((source, table))
        self._numbers += (begin, end, run.at, ~source)

    def pack(self, packed: Packed) -> int:
        """Return how many tokens of the lane lie before the rows ``packed``, which are the next."""
        begin = self._packed
        self._packed = begin + packed.ids.tokens
        return begin

    def tell(self) -> Fed:
        """Return what was fed since this was asked last."""
        news = self._numbers, self._new
        self._numbers, self._new = [], []
        return news
