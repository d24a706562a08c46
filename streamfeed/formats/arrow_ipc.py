"""Arrow IPC, as a file with a footer or as a stream: one column, one batch at a time, in small parts."""

from __future__ import annotations

import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats.arrow import innermost, texts_of
from streamfeed.formats.arrow_column import find_column
from streamfeed.formats.arrow_messages import (
    ARROW_FILE,
    ARROW_STREAM,
    Batch,
    Block,
    Message,
    blocks_of_footer,
    damaged,
    read_message,
)
from streamfeed.formats.arrow_records import RecordReader
from streamfeed.formats.arrow_values import ColumnReader
from streamfeed.formats.flatbuffer import Table
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece
from streamfeed.formats.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["ArrowIpc"]

_MOST_WALKED = 4096  # batches of a stream that are looked up to split it: each costs a small read


class _Found(NamedTuple):
    """A record batch, the coordinate that it is found again by, and its name for messages."""

    seek: int
    name: str
    message: Message


class _Head(NamedTuple):
    """The schema, and of a file the places of its dictionaries and batches."""

    schema: Message
    footer: tuple[list[Block], list[Block]] | None


class ArrowIpc:
    """Reads one text column of Arrow IPC, or those of a shape; dotted names reach into structs.

    In a file, extents and a cursor's ``seek`` are numbers of record batches; in a stream, they are the bytes where the
    messages of record batches begin. ``skip`` are the rows passed in the batch.
    """

    name = "arrow"

    def __init__(self, text: str | Shape) -> None:
        self._shape = Shape(text) if isinstance(text, str) else text

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard between batches, by their stored bytes: those of a file's footer, or of a stream's messages.

        ``None`` for a shard that is damaged or has no such column (reading it says what is wrong), and for a stream of
        more than some 4,000 batches.
        """
        try:
            with closing(file.open()) as raw:
                head = _open(raw, file)
                reader = self._reader(raw, file, head.schema)
                sizes = _walk(raw, file, head, reader) if head.footer is None else _blocks(head.footer)
        except (CorruptShardError, FieldError):
            return None
        if not sizes:
            return None
        *sizes, (stop, _) = sizes
        pieces: list[Piece] = []
        start = total = 0
        for place, size in sizes:
            if total and total + size > max_bytes:
                pieces.append(Piece(Extent(start, place), total))
                start, total = place, 0
            total += size
        return [*pieces, Piece(Extent(start, stop), total)]

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the rows of the extent's batches from ``cursor`` on; see :class:`Format`."""
        with closing(file.open()) as raw:
            head = _open(raw, file)
            reader = self._reader(raw, file, head.schema)
            batches = (_of_stream if head.footer is None else _of_file)(
                raw, file, head, Extent(cursor.seek or extent.start, extent.stop), reader
            )
            skip = cursor.skip
            for found in batches:
                rows = found.message.batch.rows if found.message.batch else 0
                if skip < rows:
                    yield from reader.chunks(found.message, skip, found.seek, found.name)
                skip = max(0, skip - rows)

    def _reader(self, raw: RawFile, file: ShardFile, schema: Message) -> _Reader:
        """Return what reads the text's column, or those of the shape."""
        try:
            found = pa.ipc.read_schema(pa.py_buffer(_framed(schema.metadata)))
            if not self._shape.plain:
                return RecordReader(raw, file, found, _metadata(schema), self._shape)
            column = find_column(found, self._shape.text or "text", file.shard)
            number = -1 if column.index is None else column.dictionary_id(_metadata(schema))
            return _TextReader(ColumnReader(raw, file, column), number)
        except (pa.ArrowException, OSError, ValueError, IndexError, struct.error) as error:
            raise damaged(file, schema.begin, f"the schema is damaged ({error})") from error


class _Reader(Protocol):
    """Reads batches."""

    dictionaries: frozenset[int]
    """ids of the dictionaries that are needed"""

    def stored(self, batch: Batch) -> int:
        """Return the stored bytes of what is read of ``batch``."""

    def learn(self, message: Message) -> None:
        """Take the dictionary in ``message``."""

    def chunks(self, message: Message, skip: int, seek: int, place: str) -> Iterator[Chunk]:
        """Yield the rows behind the first ``skip`` of the batch ``place``, whose coordinate is ``seek``."""


class _TextReader:
    """Reads one column of text."""

    def __init__(self, column: ColumnReader, number: int) -> None:
        self._column = column
        self.dictionaries = frozenset(() if number < 0 else (number,))
        self.stored = column.stored
        self.learn = column.learn

    def chunks(self, message: Message, skip: int, seek: int, place: str) -> Iterator[Chunk]:
        for row, array in self._column.rows(message, skip):
            yield _chunk(array, seek, row, place)


def _open(raw: RawFile, file: ShardFile) -> _Head:
    """Read what stands in front: the schema, and the footer, so that a file that is cut off says so at once."""
    mark = raw.read_at(0, 8)
    if not mark.startswith((ARROW_FILE, ARROW_STREAM)):
        cause = "this is no Arrow IPC data" if mark else "the shard is empty, which no Arrow data is"
        raise CorruptShardError(file.shard, "byte 0", cause, "name the shard by what it holds")
    footer = blocks_of_footer(raw, file) if mark.startswith(ARROW_FILE) else None
    begin = 8 if footer else 0
    schema = read_message(raw, file, begin)
    if schema is None or schema.batch is not None:
        raise damaged(file, begin, "there is no schema in front of the batches")
    return _Head(schema, footer)


def _framed(metadata: bytes) -> bytes:
    return ARROW_STREAM + len(metadata).to_bytes(4, "little") + metadata


def _metadata(schema: Message) -> Table:
    found = Table.root(schema.metadata).table(2)
    assert found is not None, "a parsed message has a header"
    return found


def _blocks(footer: tuple[list[Block], list[Block]]) -> list[tuple[int, int]]:
    """Return the number and the stored bytes of every batch, and the number behind the last."""
    sizes = [block.nbytes for block in footer[1]]
    return [*enumerate(sizes), (len(sizes), 0)]


def _walk(raw: RawFile, file: ShardFile, head: _Head, reader: _Reader) -> list[tuple[int, int]]:
    """Return the byte and the stored bytes of every batch, and the byte behind the last; nothing for too many."""
    found: list[tuple[int, int]] = []
    at = head.schema.end
    while (message := read_message(raw, file, at)) is not None:
        if message.batch is not None and message.dictionary < 0:
            found.append((message.begin, reader.stored(message.batch)))
            if len(found) == 1 and file.size // (message.end - message.begin) > _MOST_WALKED:
                return []
        at = message.end
    return [*found, (at, 0)]


def _of_file(raw: RawFile, file: ShardFile, head: _Head, extent: Extent, reader: _Reader) -> Iterator[_Found]:
    assert head.footer is not None
    dictionaries, batches = head.footer
    for block in dictionaries if reader.dictionaries else []:
        message = _at(raw, file, block.begin)
        if message.dictionary in reader.dictionaries:
            reader.learn(message)
    stop = len(batches) if extent.stop < 0 else min(extent.stop, len(batches))
    for batch in range(extent.start, stop):
        yield _Found(batch, f"batch {batch}", _at(raw, file, batches[batch].begin))


def _at(raw: RawFile, file: ShardFile, begin: int) -> Message:
    message = read_message(raw, file, begin)
    if message is None or message.batch is None:
        raise damaged(file, begin, "the footer says that a batch begins here")
    return message


def _of_stream(raw: RawFile, file: ShardFile, head: _Head, extent: Extent, reader: _Reader) -> Iterator[_Found]:
    """Yield the batches; where a dictionary is needed, all messages before them are looked at, and passed over."""
    at = head.schema.end if reader.dictionaries else max(head.schema.end, extent.start)
    while extent.stop < 0 or at < extent.stop:
        message = read_message(raw, file, at)
        if message is None:
            return
        if message.batch is None:
            raise damaged(file, at, "there is a second schema")
        if message.dictionary < 0 and at >= extent.start:
            yield _Found(at, f"batch at byte {at}", message)
        elif message.dictionary in reader.dictionaries:
            reader.learn(message)
        at = message.end


def _chunk(array: Any, seek: int, row: int, place: str) -> Chunk:  # noqa: ANN401
    return Chunk(seek, row, texts_of(innermost(array), lambda index: f"{place}, row {row + index}"))
