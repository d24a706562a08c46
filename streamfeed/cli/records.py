"""Records that rows are made of, read again from their shards."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import Bad, Cursor
from streamfeed.stats import ReadStats
from streamfeed.storage.fetch import Fetcher
from streamfeed.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator

    from streamfeed.formats.protocol import Chunk
    from streamfeed.loader.provenance import RecordOrigin
    from streamfeed.plan.plan import Plan

__all__ = ["RecordReader"]

_BYTES = ("jsonl", "lines", "tar")
"""Formats whose shards are cut at bytes, and whose readers begin a chunk at the byte of its first record."""


class RecordReader:
    """Reads single records of a plan, each from its own place on."""

    def __init__(self, plan: Plan) -> None:
        stats, fetcher = ReadStats(), Fetcher()
        self._plan = plan
        self._stores = [Store(source.storage_options, stats, fetcher, source.retry) for source in plan.sources]

    def byte(self, record: RecordOrigin) -> int | None:
        """Return the byte of its shard that ``record`` begins at, where its unit is a range of bytes; else None."""
        if record.stop < 0 or self._kind(record) not in _BYTES:
            return None
        return self._chunk(record).seek

    def value(self, record: RecordOrigin) -> Any:  # noqa: ANN401 - JSON
        """Return the text of ``record``; of one with several fields those that are read, as JSON."""
        value = self._chunk(record).values[0]
        shape = self._plan.sources[record.source].shape
        if value is None or isinstance(value, Bad):
            return None
        if shape.keyed:  # the key of the hold-out is in front, on a line of its own
            value = value.partition("\n")[2]
        return value if shape.texts else json.loads(value)

    def _kind(self, record: RecordOrigin) -> str:
        source = self._plan.sources[record.source]
        return source.shards.kind(int(source.units.shard[record.unit]))

    def _chunk(self, record: RecordOrigin) -> Chunk:
        source = self._plan.sources[record.source]
        shards, shard = source.shards, int(source.units.shard[record.unit])
        file = self._stores[record.source].file(shards.url(shard), int(shards.sizes[shard]), shards.version(shard))
        reader, extent = make_format(shards.kind(shard), source.shape), source.units.extent(record.unit)
        with closing(cast("Generator[Chunk]", reader.read(file, extent, Cursor(record.seek, record.skip)))) as chunks:
            return next(chunks)
