"""Which records the rows of a batch are made of, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch

from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.dataset.origins import PieceOrigin
    from streamfeed.dataset.share import Share
    from streamfeed.loader.reader import Drawn, Filled
    from streamfeed.plan.plan import Plan

__all__ = ["Piece", "Provenance", "RecordOrigin", "TracedBatch", "Tracer", "named"]


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """A record of a source.

    ``shard`` is its redacted URL. ``record`` counts from 0 in what was read of the shard at a time: all of it
    (``start`` is 0 and ``stop`` is -1) or what lies between ``start`` and ``stop``, which are bytes in lines and tars,
    row groups in Parquet, record batches in Arrow. ``seek`` and ``skip`` are the place where a reader of the format
    finds it again. ``epoch`` counts from 0, ``unit`` is the number of that part among all of the source.
    """

    source: int
    shard: str
    start: int
    stop: int
    record: int
    epoch: int
    unit: int
    seek: int
    skip: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a document in a row.

    Columns ``begin`` to ``end - 1`` are tokens ``token`` and following of the ``sample``-th sample (from 0; only a map
    function makes several) of ``records``: one, or all that a batched map function got together.
    """

    begin: int
    end: int
    token: int
    sample: int
    records: tuple[RecordOrigin, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


class Provenance(Sequence[tuple[Piece, ...]]):
    """For each row of a batch, its pieces by column; a row of a lane that has ended has none.

    ``numbers`` are the rows' numbers in the stream (of this pass).
    """

    def __init__(self, plan: Plan, drawn: Sequence[Drawn], first: int, numbers: range) -> None:
        self.numbers = numbers
        self._plan = plan
        self._drawn = drawn
        self._first = first

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> tuple[Piece, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[Piece, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[Piece, ...] | list[tuple[Piece, ...]]:
        return self._rows[index]

    @cached_property
    def _rows(self) -> list[tuple[Piece, ...]]:
        rows: list[tuple[Piece, ...]] = [()] * len(self.numbers)
        for origins, places, first in self._drawn:
            for row, place in enumerate(places.tolist(), first):
                if 0 <= place - self._first < len(rows):
                    rows[place - self._first] = named(self._plan, origins.pieces(row))
        return rows

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows as plain JSON."""
        pairs = zip(self.numbers, self._rows, strict=True)
        return [{"row": number, "pieces": [piece.to_json() for piece in row]} for number, row in pairs]


def named(plan: Plan, pieces: Sequence[PieceOrigin]) -> tuple[Piece, ...]:
    """Return the pieces of a row with their shards by name."""
    return tuple(
        Piece(begin, end, token, number, tuple(_record(plan, *record) for record in records))
        for begin, end, token, number, records in pieces
    )


def _record(plan: Plan, source: int, epoch: int, unit: int, record: int, seek: int, skip: int) -> RecordOrigin:
    planned = plan.sources[source]
    start, stop = planned.units.extent(unit)
    shard = redact(planned.shards.url(int(planned.units.shard[unit])))
    return RecordOrigin(source, shard, start, stop, record, epoch, unit, seek, skip)


class TracedBatch(dict[str, torch.Tensor]):
    """A batch that knows which records it is made of."""

    _made: Callable[[], Provenance]

    @cached_property
    def provenance(self) -> Provenance:
        """The records; none of the batch's columns, so that no model gets them."""
        return self._made()


class Tracer(NamedTuple):
    """Tells batches of one rank which records they are made of."""

    plan: Plan
    share: Share

    def trace(self, batches: Sequence[dict[str, torch.Tensor]], filled: Filled, rows: int) -> list[TracedBatch]:
        """Return ``batches`` of ``rows`` rows each, which were filled together, with their provenance."""
        traced = []
        for index, batch in enumerate(batches):
            traced.append(TracedBatch(batch))
            traced[-1]._made = partial(self._provenance, filled, index * rows, rows)  # noqa: SLF001 - our own
        return traced

    def _provenance(self, filled: Filled, first: int, rows: int) -> Provenance:
        begin = (filled.first + first) * self.share.world + self.share.rank
        numbers = range(begin, begin + rows * self.share.world, self.share.world)
        return Provenance(self.plan, filled.drawn, first, numbers)
