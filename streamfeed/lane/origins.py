"""Which records documents, samples and rows are made of: kept only where somebody asks.

Every document of a window remembers its record, every sample its documents. What packers do needs no memory: they take
the tokens of the runs in order, so that where a row's tokens lie in all that was fed says which samples they are of.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.mapping import Origins
    from streamfeed.lane.pack import Packed
    from streamfeed.lane.records import UnitRecords
    from streamfeed.lane.runs import Run

__all__ = ["RECORD", "Fed", "Ledger", "Marks", "Origin", "SampleRecords"]

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


class SampleRecords(NamedTuple):
    """The records of some samples.

    Sample ``i`` is the ``number[i]``-th made of record ``document[i]`` of ``records`` (int64 ``[documents, 6]``, see
    :data:`RECORD`); where ``document`` is None, of all of them, which a batched function got at once.
    """

    records: NDArray[np.int64]
    document: NDArray[np.int64] | None
    number: NDArray[np.int64]

    @classmethod
    def of(cls, records: NDArray[np.int64], samples: int, origins: Origins | None, *, batched: bool) -> SampleRecords:
        """Return those of samples that come from ``records`` as ``origins`` say; None: one of each."""
        if origins is None:
            return cls(records, np.arange(samples), np.zeros(samples, dtype=np.int64))
        return cls(records, None if batched else origins.document, origins.sample)

    def part(self, start: int, stop: int) -> SampleRecords:
        """Return those of samples ``start`` to ``stop - 1``."""
        document = None if self.document is None else self.document[start:stop]
        return SampleRecords(self.records, document, self.number[start:stop])


class Fed(NamedTuple):
    """A run that was fed to a packer: its tokens begin behind ``begin`` others of the lane."""

    begin: int
    end: int
    offsets: NDArray[np.int64]
    records: SampleRecords


class Origin(NamedTuple):
    """Where rows come from that were packed together: their tokens, as laid end to end, begin behind ``begin`` others.

    ``fed`` are the runs that have tokens in these rows.
    """

    begin: int
    fed: tuple[Fed, ...]


class Ledger:
    """What a lane's packer was fed, and has not yet made rows of; packers take tokens in order, and drop none."""

    def __init__(self) -> None:
        self._held: deque[Fed] = deque()
        self._fed = 0
        self._packed = 0

    def feed(self, run: Run) -> None:
        """Note a run, before the packer gets it."""
        if len(run.ids):
            assert run.records is not None
            begin, self._fed = self._fed, self._fed + len(run.ids)
            self._held.append(Fed(begin, self._fed, run.offsets, run.records))

    def origin(self, packed: Packed) -> Origin:
        """Return where the next rows come from."""
        begin, held = self._packed, self._held
        end = self._packed = begin + packed.tokens
        fed = []
        while held and held[0].begin < end:
            fed.append(held[0])
            if held[0].end > end:
                break
            held.popleft()
        return Origin(begin, tuple(fed))
