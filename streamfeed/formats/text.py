"""Plain text: a document a line, or a document a file."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfeed.errors import ReadError
from streamfeed.formats.compressed import Compression, unpacked
from streamfeed.formats.lines import BOM, Decoded, refuse_foreign
from streamfeed.formats.protocol import Bad, Chunk, Cursor, Extent, Piece, Value
from streamfeed.formats.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["TextDecoder", "WholeText"]

PLAIN = Shape()
_BLOCK = 1 << 20
_LIMIT = 1 << 28
"""Bytes of a text, as of a line and of a tar's member."""


class TextDecoder:
    """Turns lines into texts: a line is a document, a blank one an empty document, which is dropped and counted."""

    name = "lines"
    what = "lines of text"
    blanks = True

    def __init__(self, shape: Shape = PLAIN) -> None:
        self._shape = shape

    def decode(self, lines: list[bytes]) -> Decoded:
        """Return the text of every line, without its carriage return."""
        decoded = self._texts(lines)
        if self._shape.plain:
            return decoded
        return _records(decoded.values, self._shape)

    def _texts(self, lines: list[bytes]) -> Decoded:
        values: list[Value] = []
        bad: list[int] = []
        for line in lines:
            value = _text(line.removesuffix(b"\r"), "", "the line")
            if value.__class__ is Bad:
                bad.append(len(values))
            values.append(value)
        return Decoded(values, bad)


def _records(texts: list[Value], shape: Shape) -> Decoded:
    """Return records whose fields are all the text."""
    values = [shape.value_of([text] * len(shape.fields)) for text in texts]
    return Decoded(values, [i for i, value in enumerate(values) if isinstance(value, Bad)])


class WholeText:
    """Reads a file as one document, plain or under ``gz`` or ``zst``; a byte order mark is passed over.

    The extent is always the whole shard, which has one record.
    """

    name = "text"

    def __init__(self, compression: Compression | None, shape: Shape = PLAIN) -> None:
        self._compression = compression
        self._shape = shape

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:  # noqa: ARG002
        """Return ``None``: a document is read whole."""
        return None

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the document, unless ``cursor`` is behind it; see :class:`Format`."""
        if extent.start or extent.stop >= 0:
            raise ValueError(f"a shard of text is read whole, not as {extent}")
        if cursor.skip:
            return
        with closing(file.open()) as raw:
            value = self._document(raw, file)
        if not self._shape.plain:
            value = self._shape.value_of([value] * len(self._shape.fields), "byte 0")
        yield Chunk(0, 0, [value])

    def _document(self, raw: RawFile, file: ShardFile) -> Value:
        blocks = _blocks(raw, file)
        if self._compression is not None:
            raw.expect(0, file.size)
            blocks = (step.data for step in unpacked(raw, file, self._compression))
        held: list[bytes] = []
        size = 0
        for block in blocks:
            if not held:
                refuse_foreign(block, file.shard, "text")
            held.append(block)
            size += len(block)
            if size > _LIMIT:
                cause = f"the document has more than {_LIMIT:,} bytes, which is the most that is read"
                return Bad("byte 0", cause, "cut it, or set the source's format to lines")
        return _text(b"".join(held).removeprefix(BOM), "byte 0", "the document")


def _blocks(raw: RawFile, file: ShardFile) -> Iterator[bytes]:
    raw.expect(0, file.size)
    position = 0
    while position < file.size:
        block = raw.read(min(_BLOCK, file.size - position))
        if not block:
            cause = f"the file ended here while {file.size:,} bytes were expected"
            raise ReadError(file.shard, f"byte {position}", cause, "it was changed while it was read")
        position += len(block)
        yield block


def _text(data: bytes, where: str, what: str) -> Value:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return Bad(where, f"{what} is not valid UTF-8: {error.reason} at its byte {error.start}")
