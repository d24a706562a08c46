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
        self._rows: list[tuple[int, int, int, int]] = []

    def one(self, unit: int, records: UnitRecords) -> None:
        """Note that the record taken last became a document."""
        seek, skip = records.cursor
        self._rows.append((unit, records.record - 1, seek, skip - 1))

    def run(self, unit: int, records: UnitRecords, texts: Sequence[object], kept: Sequence[object]) -> None:
        """Note that of the records taken last, with these ``texts``, those ``kept`` became documents."""
        seek, skip = records.cursor
        record, skip = records.record - len(texts), skip - len(texts)
        if len(kept) == len(texts):
            self._rows += [(unit, record + i, seek, skip + i) for i in range(len(texts))]
            return
        left = iter(kept)
        wanted = next(left, None)
        for i, text in enumerate(texts):
            if text is wanted:
                self._rows.append((unit, record + i, seek, skip + i))
                wanted = next(left, None)

    def table(self, order: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Return the records in the order in which the documents are used, int64 ``[documents, 6]``."""
        found = np.empty((len(self._rows), len(RECORD)), dtype=np.int64)
        found[:, :2] = self._head
        if self._rows:
            found[:, 2:] = self._rows
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


Fed = tuple[int, int, int, int, Table | None]
"""A run that was fed to a packer: its tokens are ``[0]`` to ``[1] - 1`` of all of the lane, and the first is token
``[2]`` of the newest table of source ``[3]``, which is ``[4]`` where it was not told before."""


class Ledger:
    """What a lane's packer was fed, as it is to be told, and how much of it is in rows."""

    def __init__(self) -> None:
        self._news: list[Fed] = []
        self._tables: dict[int, Table] = {}
        self._fed = 0
        self._packed = 0

    def feed(self, run: Run) -> None:
        """Note a run, before the packer gets it."""
        tokens, table, begin = len(run.ids), run.table, self._fed
        if not tokens:
            return
        assert table is not None
        self._fed = begin + tokens
        known = self._tables.get(run.source) is table
        self._news.append((begin, self._fed, run.at, run.source, None if known else table))
        self._tables[run.source] = table

    def pack(self, packed: Packed) -> int:
        """Return how many tokens of the lane lie before the rows ``packed``, which are the next."""
        begin = self._packed
        self._packed += packed.ids.tokens
        return begin

    def tell(self) -> list[Fed]:
        """Return what was fed since this was asked last."""
        news, self._news = self._news, []
        return news
