"""Whole records of shards, by the readers that lanes have: any format, from any cursor, every error in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from streamfeed.convert.rows import Rows, Sample, json_rows, sample_rows
from streamfeed.convert.tars import RawSamples
from streamfeed.errors import RecordError
from streamfeed.formats.compressed import CompressedLines
from streamfeed.formats.detect import make_format
from streamfeed.formats.lines import Decoded
from streamfeed.formats.plain import PlainLines
from streamfeed.formats.protocol import Bad, Cursor, Extent, Format, Value
from streamfeed.formats.shape import Field, Shape
from streamfeed.formats.tar import Tar
from streamfeed.formats.tar_stream import TarStream
from streamfeed.formats.whole import BatchRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.formats.compressed import Compression
    from streamfeed.storage.files import ShardFile

__all__ = ["Part", "Size", "WholeRecords"]


class Size(NamedTuple):
    """Consecutive records: how many from cursor ``(seek, skip)`` on, and their bytes as those of :class:`Part`."""

    seek: int
    skip: int
    records: int
    nbytes: int


class Part(NamedTuple):
    """Consecutive records: row ``i`` stands at cursor ``(seek, skip + i)``.

    ``nbytes`` are those of the records as the source has them, without compression.
    """

    seek: int
    skip: int
    nbytes: int
    rows: Rows


class _Lines:
    """Lines of JSON as they are: what is in them is looked at where it is needed."""

    name = "jsonl"
    what = "JSON Lines"
    blanks = False

    def decode(self, lines: list[bytes]) -> Decoded:
        return Decoded(cast("list[Value]", lines), [])


class WholeRecords:
    """Reads the records of shards of ``kind``, with all their fields; ``text`` names the text where a format has none.

    Raises what the format's readers do, and :class:`RecordError` for a record that the bytes prove bad: nothing is left
    out of a conversion.
    """

    def __init__(self, kind: str, text: str = "text") -> None:
        self.format = _format(kind, text)

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Part]:
        """Yield the records of ``extent`` from ``cursor`` on, in order, some at a time."""
        for chunk in self.format.read(file, extent, cursor):
            if len(chunk.values):
                yield _part(chunk.seek, chunk.skip, chunk.values, file)

    def sizes(self, file: ShardFile, extent: Extent) -> Iterator[Size]:
        """Yield the records of ``extent`` without looking at them: how many there are, and where."""
        for chunk in self.format.read(file, extent, Cursor()):
            values: Any = chunk.values
            if isinstance(values, BatchRows):
                nbytes = values.batch.nbytes
            elif len(values) and isinstance(values[0], bytes):
                nbytes = sum(map(len, values))
            else:
                nbytes = sum(map(_size, values))
            if len(values):
                yield Size(chunk.seek, chunk.skip, len(values), nbytes)


def _size(value: object) -> int:
    """Return the bytes of a record that is none of JSON Lines."""
    if isinstance(value, Sample):
        return sum(map(len, value.members.values()))
    return len(value.encode()) if isinstance(value, str) else 0


def _format(kind: str, text: str) -> Format:
    name, _, packing = kind.partition(".")
    compression = cast("Compression | None", packing or None)
    if name == "jsonl":
        return PlainLines(_Lines()) if compression is None else CompressedLines(_Lines(), compression)
    if name == "tar":
        return Tar(RawSamples()) if compression is None else TarStream(RawSamples(), compression)
    if name in {"text", "lines"}:
        return make_format(kind, Shape(fields=(Field(text, None, "any"),)))
    return make_format(kind, Shape(whole=True))


def _part(seek: int, skip: int, values: Any, file: ShardFile) -> Part:  # noqa: ANN401
    if isinstance(values, BatchRows):
        batch = values.batch
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise RecordError(
                file.shard, f"rows {skip} to {skip + len(batch)}", str(error), "mend the shard"
            ) from error
        return Part(seek, skip, batch.nbytes, Rows("columns", _plain(batch)))
    bad = next((value for value in values if isinstance(value, Bad)), None)
    if bad is not None:
        raise RecordError(file.shard, bad.where, bad.cause, bad.advice)
    first = values[0]
    if isinstance(first, Sample):
        size = sum(len(data) for sample in values for data in sample.members.values())
        return Part(seek, skip, size, sample_rows(values))
    lines = values if isinstance(first, bytes) else [value.encode() for value in values]
    return Part(seek, skip, sum(map(len, lines)), json_rows(lines))


def _plain(batch: Any) -> Any:  # noqa: ANN401
    """Return a batch without dictionaries on top of columns: how they are cut would show in what is written."""
    for index, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type):
            plain = field.with_type(field.type.value_type)
            batch = batch.set_column(index, plain, batch.column(index).dictionary_decode())
    return batch
