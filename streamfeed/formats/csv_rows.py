"""CSV and TSV: the first record names the fields, and text stays text, ``007``, ``NaN`` and ``null`` as written."""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError, FieldError, ReadError
from streamfeed.formats.compressed import Compression, unpacked
from streamfeed.formats.csv_cutter import Record, RecordCutter, fields_of
from streamfeed.formats.fields import listed
from streamfeed.formats.lines import BLOCK, BOM, LINE_LIMIT, refuse_foreign
from streamfeed.formats.pieces import coalesced
from streamfeed.formats.protocol import Bad, Chunk, Cursor, Extent, Piece, Value
from streamfeed.formats.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["CsvRows"]

_DELIMITERS = {"csv": b",", "tsv": b"\t"}


class _Header:
    """The names of the fields, and which of them is the text, or are the fields of the shape."""

    def __init__(self, record: Record, delimiter: bytes, shape: Shape, file: ShardFile) -> None:
        found = fields_of(record.data.removeprefix(BOM), delimiter)
        if isinstance(found, str):
            raise CorruptShardError(file.shard, "byte 0", f"the header is damaged: {found}", "write the shard again")
        names = [name.decode(errors="backslashreplace") for name in found]
        self._count = len(names)
        shape = shape.all_of(names)
        self._shape = shape
        self._index = _number(names, shape.text or "text", file) if shape.plain else -1
        self._indexes = [_number(names, field.name or field.key, file) for field in shape.fields]
        self._delimiter = delimiter

    def value(self, record: Record, where: str) -> Value:
        """Return the text of ``record``, or what is bad about it."""
        found = fields_of(record.data, self._delimiter)
        if isinstance(found, str):
            return Bad(where, f"the record is damaged: {found}")
        if len(found) != self._count:
            return Bad(where, f"the record has {len(found):,} fields, and the header names {self._count:,}")
        if self._indexes:
            return self._shape.value_of([_decoded(found[index], where) for index in self._indexes], where)
        return _decoded(found[self._index], where)


def _number(names: list[str], field: str, file: ShardFile) -> int:
    """Return which of the fields ``names`` is ``field``."""
    if names.count(field) != 1:
        what = "two fields" if field in names else "no field"
        cause = f"there {'are' if field in names else 'is'} {what} {field!r}; fields present: {listed(names)}"
        raise FieldError(file.shard, "header", cause, "set the source's text to a name in the shard's first line")
    return names.index(field)


def _decoded(data: bytes, where: str) -> str | Bad:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return Bad(where, f"the text is not valid UTF-8: {error.reason} at its byte {error.start}")


class CsvRows:
    """Reads one field of CSV (``csv``) or TSV (``tsv``), or those of a shape, plain or under ``gz`` or ``zst``.

    The extent is always the whole shard: inside of it nobody can tell a record's end from a newline in quotes. In a
    plain shard a cursor's ``seek`` is the byte of a record (0: the first behind the header), in a compressed one it is
    0; ``skip`` are the records after it.
    """

    def __init__(self, name: str, text: str | Shape, compression: Compression | None) -> None:
        self.name = name
        self._delimiter = _DELIMITERS[name]
        self._shape = Shape(text) if isinstance(text, str) else text
        self._compression = compression

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:  # noqa: ARG002
        """Return ``None``: there is no way in but at a record's start."""
        return None

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the records from ``cursor`` on; see :class:`Format`."""
        if extent.start or extent.stop >= 0:
            raise ValueError(f"a shard of {self.name} is read whole, not as {extent}")
        skip, done = cursor.skip, 0
        with closing(file.open()) as raw:
            header, runs = self._begin(raw, file, cursor.seek)
            for records in runs:
                dropped = min(skip, len(records))
                skip -= dropped
                if dropped < len(records):
                    yield self._chunk(header, records[dropped:], done + dropped)
                done += len(records)

    def _begin(self, raw: RawFile, file: ShardFile, seek: int) -> tuple[_Header, Iterator[list[Record]]]:
        """Read the header; return it with the runs of records from byte ``seek`` on."""
        runs = self._runs(raw, file, 0)
        first = next((records for records in runs if records), None)
        if first is None:
            raise CorruptShardError(file.shard, "byte 0", "the shard has no header", "its first line names the fields")
        header = _Header(first[0], self._delimiter, self._shape, file)
        return header, self._runs(raw, file, seek) if seek else chain([first[1:]], runs)

    def _runs(self, raw: RawFile, file: ShardFile, start: int) -> Iterator[list[Record]]:
        """Yield the records of the shard from byte ``start`` on, some at a time, the header among them."""
        cutter = RecordCutter(start, self._delimiter)
        count = 0
        for block in self._blocks(raw, file, start):
            found = cutter.feed(block)
            yield found
            count += len(found)
            if cutter.held > LINE_LIMIT:
                raise self._open(file, cutter, count, f"a record has more than {LINE_LIMIT >> 20} MiB")
        found = cutter.finish()
        yield found
        if cutter.inside:
            raise self._open(file, cutter, count + len(found), "the shard ends inside of the quotes of a field")

    def _blocks(self, raw: RawFile, file: ShardFile, start: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` on."""
        raw.expect(start, file.size)
        what = self.name.upper()
        if self._compression is not None:
            for number, step in enumerate(coalesced(unpacked(raw, file, self._compression))):
                if number == 0:
                    refuse_foreign(step.data, file.shard, f"compressed {what}")
                yield step.data
            return
        position = start
        raw.seek(start)
        while position < file.size:
            block = raw.read(min(BLOCK, file.size - position))
            if not block:
                cause = f"the file ended here while {file.size:,} bytes were expected"
                raise ReadError(file.shard, f"byte {position}", cause, "it was changed while it was read")
            if position == 0:
                refuse_foreign(block, file.shard, f"plain {what}")
            position += len(block)
            yield block

    def _open(self, file: ShardFile, cutter: RecordCutter, count: int, cause: str) -> CorruptShardError:
        """Return the error for the record that is open behind ``count`` others, the header among them."""
        where = f"byte {cutter.offset}" if self._compression is None else f"record {max(0, count - 1)}"
        advice = "a quote that is missing, or one too many, is at or behind this record's start"
        return CorruptShardError(file.shard, where, cause, advice)

    def _chunk(self, header: _Header, records: list[Record], done: int) -> Chunk:
        if self._compression is not None:
            return Chunk(0, done, [header.value(record, f"record {done + i}") for i, record in enumerate(records)])
        values = [header.value(record, f"byte {record.offset}") for record in records]
        return Chunk(records[0].offset, 0, values)
