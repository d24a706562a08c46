"""A global shuffle in two passes and bounded memory.

A record's 64 random bits are a pure function of the seed and of its number. Their upper half chooses one of many
buckets, which one after the other are the new order; within a bucket the lower half sorts. The first pass lays each
piece's records out by bucket, in segments, on the output's store; the second makes each shard of the buckets that it
spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from streamfeed.convert.cut import Shard
from streamfeed.convert.journal import FOLDER
from streamfeed.convert.rows import Rows
from streamfeed.convert.work import Done, Task
from streamfeed.formats.protocol import Cursor
from streamfeed.plan.order import keyed_bits, order_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streamfeed.convert.forms import Origin
    from streamfeed.convert.work import Worker
    from streamfeed.formats.marks import Counted
    from streamfeed.storage.output import Output

__all__ = ["BUCKET_BYTES", "Buckets", "ShuffledTask", "SpillTask", "shuffled_shards", "spans_of"]

BUCKET_BYTES = 64 << 20
"""Bytes of records in a bucket, about: a process holds one, and what it makes of it."""

SEGMENT_BYTES = 128 << 20
"""Bytes of records that are laid out together in the first pass."""

_BLOCK = 1 << 16
_FORM = b"form"


@dataclass(frozen=True)
class Buckets:
    """How ``records`` records go into ``count`` buckets by ``seed``."""

    seed: int
    records: int
    count: int

    def bits(self, first: int, records: int) -> NDArray[np.uint64]:
        """Return the random bits of records ``first`` and following, uint64 ``[records]``."""
        blocks = range(first // _BLOCK, (first + records + _BLOCK - 1) // _BLOCK)
        drawn = [keyed_bits(order_key("convert", self.seed, block), _BLOCK) for block in blocks]
        offset = first - blocks.start * _BLOCK
        return np.concatenate([np.empty(0, dtype=np.uint64), *drawn])[offset : offset + records]

    def of(self, bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the bucket of each record with these bits."""
        return (((bits >> np.uint64(32)) * np.uint64(self.count)) >> np.uint64(32)).astype(np.int64)

    def sizes(self) -> NDArray[np.int64]:
        """Return the records of every bucket, int64 ``[count]``."""
        total = np.zeros(self.count, dtype=np.int64)
        for first in range(0, self.records, _BLOCK):
            found = self.of(self.bits(first, min(_BLOCK, self.records - first)))
            total += np.bincount(found, minlength=self.count)
        return total


def shuffled_shards(counts: Sequence[Counted], max_records: int | None, max_bytes: int | None) -> list[Shard]:
    """Cut records of one size, since nobody knows where each goes: as many in every shard as the limits allow."""
    records = sum(one.records for one in counts)
    nbytes = sum(one.nbytes for one in counts)
    each = records if max_records is None else max_records
    if max_bytes is not None:
        each = min(each, max_bytes * records // max(1, nbytes))
    each = max(1, each)
    return [
        Shard(number, first, min(each, records - first), nbytes * min(each, records - first) // records, ())
        for number, first in enumerate(range(0, records, each))
    ]


@dataclass(frozen=True)
class SpillTask(Task):
    """Lays out the records of piece ``piece``, of which the first is record ``first``, by bucket."""

    piece: int
    first: int
    buckets: Buckets

    def run(self, worker: Worker) -> Done:
        """Write the piece's segments, and last a list of what is in them."""
        output = worker.journal.output
        if output.read(_index(self.piece)) is not None:
            return Done()
        held: list[tuple[Rows, Origin]] = []
        size = done = nbytes = 0
        segments: list[dict[str, list[int]]] = []
        for rows, origin in worker.piece(self.piece, Cursor()):
            held.append((rows, origin))
            size += rows.nbytes
            if size >= SEGMENT_BYTES:
                done += self._segment(worker, held, done, segments)
                nbytes, held, size = nbytes + size, [], 0
        if held:
            done += self._segment(worker, held, done, segments)
        output.write(_index(self.piece), orjson.dumps(segments))
        return Done(done, nbytes + size)

    def _segment(
        self, worker: Worker, held: list[tuple[Rows, Origin]], done: int, segments: list[dict[str, list[int]]]
    ) -> int:
        """Write one segment: the records in order of their buckets, a batch for each bucket that has any."""
        (rows,) = worker.shown.common([rows for rows, _ in held], held[0][1])
        bits = self.buckets.bits(self.first + done, len(rows))
        bucket = self.buckets.of(bits)
        order = bucket.argsort(kind="stable")
        sorted_bucket = bucket[order]
        found = np.unique(sorted_bucket)
        bounds = [*sorted_bucket.searchsorted(found).tolist(), len(order)]
        output = worker.journal.output
        with output.scratch() as scratch:
            path = scratch / "segment"
            schema = rows.batch.schema.with_metadata({_FORM: rows.form.encode()})
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for start, stop in pairwise(bounds):
                    writer.write_batch(rows.take(order[start:stop]).batch.replace_schema_metadata(schema.metadata))
            output.place(path, _segment(self.piece, len(segments)))
        segments.append({"first": [self.first + done, len(rows)], "buckets": found.tolist()})
        return len(rows)


@dataclass(frozen=True)
class ShuffledTask(Task):
    """Makes a shard of the buckets that it spans: ``spans`` are each bucket's number, and which of its records."""

    shard: Shard
    buckets: Buckets
    pieces: int
    spans: tuple[tuple[int, int, int], ...]

    def run(self, worker: Worker) -> Done:
        """Make the shard, unless it is there."""
        shard = self.shard
        entry = worker.journal.check(shard.number)
        kept = entry is not None
        if entry is None:
            entry = worker.write(shard, self._rows(worker))
        return Done(shard.records, shard.nbytes, ((shard.number, entry),), int(kept))

    def _rows(self, worker: Worker) -> Iterator[tuple[Rows, Origin]]:
        spilled = _Spilled(worker.journal.output, self.pieces)
        for bucket, start, stop in self.spans:
            rows, bits = spilled.bucket(bucket, self.buckets)
            origin = worker.shuffled
            order = (bits & np.uint64(0xFFFFFFFF)).argsort(kind="stable")[start:stop]
            joined = worker.shown.common(rows, origin)
            if len(joined) == 1:
                yield joined[0].take(order), origin
                continue
            bounds = np.cumsum([0, *map(len, joined)])
            which = bounds.searchsorted(order, side="right") - 1
            for index, part in zip(order.tolist(), which.tolist(), strict=True):
                inside = index - int(bounds[part])
                yield joined[part].part(inside, inside + 1), origin


class _Spilled:
    """What the first pass left, in the order of the source."""

    def __init__(self, output: Output, pieces: int) -> None:
        self._output = output
        self._segments: list[tuple[str, list[int], dict[int, int]]] = []
        for piece in range(pieces):
            for number, said in enumerate(orjson.loads(output.read(_index(piece)) or b"[]")):
                places = {bucket: batch for batch, bucket in enumerate(said["buckets"])}
                self._segments.append((_segment(piece, number), said["first"], places))

    def bucket(self, bucket: int, buckets: Buckets) -> tuple[list[Rows], NDArray[np.uint64]]:
        """Return the records of a bucket, and their bits."""
        found: list[Rows] = []
        bits: list[NDArray[np.uint64]] = [np.empty(0, dtype=np.uint64)]
        for name, (first, records), places in self._segments:
            if bucket not in places:
                continue
            with self._output.open(name) as file:
                batches = pa.ipc.open_file(file)
                form = batches.schema.metadata[_FORM].decode()
                batch = batches.get_batch(places[bucket])
            found.append(Rows(form, batch.replace_schema_metadata(None)))
            some = buckets.bits(first, records)
            bits.append(some[buckets.of(some) == bucket])
        return found, np.concatenate(bits)


def spans_of(shards: Sequence[Shard], sizes: NDArray[np.int64]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield which records of which buckets make each shard."""
    ends = np.cumsum(sizes)
    for shard in shards:
        first, stop = shard.first, shard.first + shard.records
        found: list[tuple[int, int, int]] = []
        bucket = int(ends.searchsorted(first, side="right"))
        while first < stop:
            begin = int(ends[bucket] - sizes[bucket])
            end = min(stop, int(ends[bucket]))
            if end > first:
                found.append((bucket, first - begin, end - begin))
            first, bucket = max(first, end), bucket + 1
        yield tuple(found)


def _index(piece: int) -> str:
    return f"{FOLDER}/shuffle/{piece:05}.json"


def _segment(piece: int, number: int) -> str:
    return f"{FOLDER}/shuffle/{piece:05}-{number:05}.arrow"
