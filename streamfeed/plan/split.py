"""How many lanes a run has, and the units that feed them.

``lanes="auto"`` depends on the corpus, never on ranks or workers. Shards are split only when there are too few of
them, so that a corpus of many shards costs one listing and not a footer each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from streamfeed.formats.protocol import WHOLE, LoneExtent, Piece
from streamfeed.plan.shards import ShardTable, UnitTable
from streamfeed.storage.urls import redact

__all__ = ["LADDER", "PIECE_BYTES", "Split", "split_sources"]

logger = logging.getLogger(__name__)

LADDER = (48, 24, 16, 12, 8, 6, 4, 3, 2, 1)
"""The numbers of lanes that ``auto`` chooses from: most divide by the usual numbers of ranks and workers."""

PIECE_BYTES = 256 << 20
"""Seekable shards are cut to at most this when there are too few of them."""

UNITS_PER_LANE_OF_A_FINITE_PASS = 8
"""With fewer, lanes end at very different times and the tail of the pass is mostly padding."""

LEAST_PIECE_BYTES = 64 << 10
"""A smaller piece may hold no record at all; below this, shards are strided."""

Splitter = Callable[[int, int], list[Piece] | None]
"""``(shard, max_bytes) -> pieces``, or None where the shard cannot be entered in the middle."""


@dataclass(frozen=True)
class Split:
    """The number of lanes, and every source's units in listed order."""

    lanes: int
    units: list[UnitTable]


def split_sources(
    tables: Sequence[ShardTable],
    splitters: Sequence[Splitter],
    lanes: int | Literal["auto"],
    *,
    finite: bool,
) -> Split:
    """Choose the lanes and cut every source into at least one unit a lane.

    An explicit number of ``lanes`` is kept. ``auto`` takes the largest of :data:`LADDER` that the source with the most
    bytes can feed with whole pieces.
    """
    units = [_whole_shards(table) for table in tables]
    if lanes == "auto":
        largest = max(range(len(tables)), key=lambda source: int(tables[source].sizes.sum()))
        per_lane = UNITS_PER_LANE_OF_A_FINITE_PASS if finite else 1
        if len(units[largest]) < LADDER[0] * per_lane:
            units[largest] = _cut(tables[largest], splitters[largest], PIECE_BYTES)
        count = next((v for v in LADDER if len(units[largest]) >= v * per_lane), 1)
    else:
        count = lanes
    for source, table in enumerate(tables):
        units[source] = _at_least(units[source], table, splitters[source], count)
    return Split(count, units)


def _whole_shards(table: ShardTable) -> UnitTable:
    sizes = table.sizes.tolist()
    return UnitTable.build([(shard, *WHOLE, 0, 1, max(1, size)) for shard, size in enumerate(sizes)])


def _cut(table: ShardTable, splitter: Splitter, max_bytes: int) -> UnitTable:
    rows: list[tuple[int, int, int, int, int, int]] = []
    alone: list[bool] = []
    for shard, size in enumerate(table.sizes.tolist()):
        pieces = splitter(shard, max_bytes) if size > max_bytes else None
        pieces = pieces or [Piece(WHOLE, size)]
        rows += [(shard, *piece.extent, 0, 1, max(1, piece.nbytes)) for piece in pieces]
        alone += [isinstance(piece.extent, LoneExtent) for piece in pieces]
    return UnitTable.build(rows, alone)


def _at_least(units: UnitTable, table: ShardTable, splitter: Splitter, lanes: int) -> UnitTable:
    """Cut finer, and in the last resort stride, until there is a unit for every lane."""
    if len(units) >= lanes:
        return units
    total = int(table.sizes.sum())
    for _ in range(2):
        finer = _cut(table, splitter, min(max(LEAST_PIECE_BYTES, total // lanes), PIECE_BYTES))
        units = finer if len(finer) > len(units) else units
        if len(units) >= lanes:
            return units
        # What is read of a shard can be far less than its size: one column of Parquet, one member of a tar's samples.
        total = int(finer.nbytes.sum())
    step = -(-lanes // len(units))
    if total * (step - 1) > LEAST_PIECE_BYTES * lanes:
        logger.warning(
            "%s and %d more shards are too few for %d lanes and cannot be split further: every shard is read %d times "
            "(%.1f MB more an epoch); use fewer lanes, or more and smaller shards",
            redact(table.url(0)),
            len(table) - 1,
            lanes,
            step,
            total * (step - 1) / 1e6,
        )
    return units.strided(step)
