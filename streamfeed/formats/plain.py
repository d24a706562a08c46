"""Lines that are not compressed: any byte is a way in, a line belongs to the extent that it begins in."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError, ReadError
from streamfeed.formats.lines import (
    BLOCK,
    BOM,
    LINE_LIMIT,
    Decoded,
    LineDecoder,
    cut_lines,
    is_blank,
    line_too_long,
    refuse_foreign,
)
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["PlainLines"]

_STEP = 1 << 16


class PlainLines:
    """Reads the records that a decoder finds in lines.

    Extents are byte ranges. A cursor's ``seek`` is the byte offset of a line's start, ``skip`` the records after it.
    """

    def __init__(self, decoder: LineDecoder) -> None:
        self.name = decoder.name
        self._decoder = decoder

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard into nearly even byte ranges of at most ``max_bytes``; reads nothing."""
        count = max(1, -(-file.size // max(1, max_bytes)))
        bounds = [file.size * i // count for i in range(count + 1)]
        return [Piece(Extent(bounds[i], bounds[i + 1]), bounds[i + 1] - bounds[i]) for i in range(count)]

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the records whose lines begin in the extent, from ``cursor`` on; see :class:`Format`."""
        stop = file.size if extent.stop < 0 else min(extent.stop, file.size)
        with closing(file.open()) as raw:
            raw.expect(max(0, (cursor.seek or extent.start) - 1), stop)
            start = cursor.seek or _first_line(raw, file, extent.start, stop)
            skip = cursor.skip
            for begin, lines in _without_bom(self._runs(self._blocks(raw, file, start, stop), start, file)):
                dropped, skip = self._leading(lines, skip)
                offset = begin + sum(len(line) + 1 for line in lines[:dropped])
                values = self._values(lines[dropped:], offset)
                if values:
                    yield Chunk(offset, 0, values)

    def _values(self, lines: list[bytes], offset: int) -> list[Value]:
        decoder = self._decoder
        decoded = decoder.decode(lines if decoder.blanks else [line for line in lines if line and not line.isspace()])
        return decoded.values if not decoded.bad else self._place(decoded, lines, offset)

    def _place(self, decoded: Decoded, lines: list[bytes], offset: int) -> list[Value]:
        starts = []
        for line in lines:
            if self._decoder.blanks or not is_blank(line):
                starts.append(offset)
            offset += len(line) + 1
        return decoded.place(lambda index: f"byte {starts[index]}")

    def _leading(self, lines: list[bytes], records: int) -> tuple[int, int]:
        """Return how many of ``lines`` hold the first ``records`` records, and how many records are left to find."""
        if not records:
            return 0, 0
        for i, line in enumerate(lines):
            records -= self._decoder.blanks or not is_blank(line)
            if not records:
                return i + 1, 0
        return len(lines), records

    def _blocks(self, raw: RawFile, file: ShardFile, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to the end of the line that holds byte ``stop - 1``."""
        raw.seek(start)
        position, block = start, b"\n"
        while position < stop:
            block = _read(raw, file, min(BLOCK, stop - position), position)
            if position == 0:
                refuse_foreign(block, file.shard, f"plain {self._decoder.what}")
            position += len(block)
            yield block
        step = _STEP
        while position < file.size and not block.endswith(b"\n"):
            block = _read(raw, file, min(step, file.size - position), position)
            position += len(block)
            block = block[: block.find(b"\n") + 1] or block
            step = min(2 * step, BLOCK)
            yield block

    def _runs(self, blocks: Iterator[bytes], offset: int, file: ShardFile) -> Iterator[tuple[int, list[bytes]]]:
        """Yield runs of whole lines (without newlines), each with the byte offset of its first."""
        tail: list[bytes] = []
        held = 0
        for block in blocks:
            lines = cut_lines(block)
            if len(lines) > 1:
                end = offset + held + len(block) - len(lines[-1])
                if held:
                    lines[0] = b"".join([*tail, lines[0]])
                    tail, held = [], 0
                block = lines.pop()  # noqa: PLW2901 (the open line)
                yield offset, lines
                offset = end
            tail.append(block)
            held += len(block)
            if held > LINE_LIMIT:
                raise CorruptShardError(
                    file.shard, f"byte {offset}", line_too_long(), f"this is no shard of {self._decoder.what}"
                )
        last = b"".join(tail)
        if last and (offset or last != BOM):
            yield offset, [last]


def _first_line(raw: RawFile, file: ShardFile, start: int, stop: int) -> int:
    """Return where the first line that begins in ``[start, stop)`` begins, ``stop`` where none does."""
    if start == 0:
        return 0
    position = start - 1
    raw.seek(position)
    while position < stop - 1:
        block = _read(raw, file, min(_STEP, stop - 1 - position), position)
        at = block.find(b"\n")
        if at >= 0:
            return position + at + 1
        position += len(block)
    return stop


def _without_bom(runs: Iterator[tuple[int, list[bytes]]]) -> Iterator[tuple[int, list[bytes]]]:
    """Let the shard's first line begin behind a byte order mark: alone on its line, the mark is no record either."""
    for offset, lines in runs:
        if offset == 0 and lines[0].startswith(BOM):
            yield len(BOM), [lines[0][len(BOM) :], *lines[1:]]
        else:
            yield offset, lines


def _read(raw: RawFile, file: ShardFile, size: int, position: int) -> bytes:
    block = raw.read(size)
    if not block:
        cause = f"the file ended here while {file.size:,} bytes were expected"
        raise ReadError(file.shard, f"byte {position}", cause, "it was changed while it was read")
    return block
