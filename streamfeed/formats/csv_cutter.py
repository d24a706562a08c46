"""RFC 4180: where a record ends, and what its fields are.

A field that begins with a quote is quoted: up to its closing quote a delimiter and a newline are text, and two quotes
are one. A quote anywhere else is text. Nothing is converted: what is no quote stays as it is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.formats.lines import cut_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Record", "RecordCutter", "fields_of"]

_CLOSE = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')  # from behind an opening quote to its closing one
_QUOTE = b'"'


class Record(NamedTuple):
    """A record's bytes, without the newline behind it, and its first byte's number in the stream."""

    offset: int
    data: bytes


class RecordCutter:
    """Cuts bytes that begin at byte ``offset`` of a stream, outside of quotes, into records; an empty line is none."""

    def __init__(self, offset: int, delimiter: bytes) -> None:
        self._opening = delimiter + _QUOTE
        self.offset = offset
        """where the open record begins"""
        # Whole lines of the open record, with their newlines, which go on inside quotes. Joined at once: behind a quote
        # that is never closed they may be very many, and each as an object takes far more than its bytes.
        self._lines = bytearray()
        self._tail: list[bytes] = []  # the open line
        self._tail_size = 0

    @property
    def inside(self) -> bool:
        """Whether the last whole line ended inside quotes."""
        return bool(self._lines)

    @property
    def held(self) -> int:
        """The bytes of the open record."""
        return len(self._lines) + self._tail_size

    def feed(self, block: bytes) -> list[Record]:
        """Return the records that ``block`` completes."""
        lines = cut_lines(block)
        if len(lines) > 1 and self._tail:
            lines[0] = b"".join([*self._tail, lines[0]])
            self._tail, self._tail_size = [], 0
        tail = lines.pop()
        if tail:
            self._tail.append(tail)
            self._tail_size += len(tail)
        return list(self._records(lines))

    def finish(self) -> list[Record]:
        """Return the last record, where no newline ended it; one that is still inside quotes stays open."""
        if not self._tail:
            return []
        last = b"".join(self._tail)
        self._tail, self._tail_size = [], 0
        return list(self._records([last]))

    def _records(self, lines: list[bytes]) -> Iterator[Record]:
        for line in lines:
            if (self._lines or _QUOTE in line) and self._ends_inside(line):
                self._lines += line
                self._lines += b"\n"
                continue
            data, size = line, len(self._lines) + len(line) + 1
            if self._lines:
                data = bytes(self._lines) + line
                self._lines = bytearray()
            data = data.removesuffix(b"\r")
            if data:
                yield Record(self.offset, data)
            self.offset += size

    def _ends_inside(self, line: bytes) -> bool:
        """Return whether ``line`` ends inside quotes; it begins inside them where lines of its record went before."""
        at, inside = 0, bool(self._lines)
        if not inside and line.startswith(_QUOTE):
            at, inside = 1, True
        while True:
            if inside:
                close = _CLOSE.match(line, at)
                if close is None:
                    return True
                at = close.end()
            found = line.find(self._opening, at)
            if found < 0:
                return False
            at, inside = found + len(self._opening), True


def fields_of(data: bytes, delimiter: bytes) -> list[bytes] | str:
    """Return the fields of a whole record, or what is wrong with its quotes."""
    if _QUOTE not in data:
        return data.split(delimiter)
    fields: list[bytes] = []
    at = 0
    while True:
        if not data.startswith(_QUOTE, at):
            end = data.find(delimiter, at)
            end = len(data) if end < 0 else end
            fields.append(data[at:end])
        else:
            close = _CLOSE.match(data, at + 1)
            if close is None:
                return f"the quotes of field {len(fields) + 1} are never closed"
            end = close.end()
            fields.append(data[at + 1 : end - 1].replace(b'""', _QUOTE))
            if end < len(data) and not data.startswith(delimiter, end):
                return f"there is text behind the closing quote of field {len(fields)}"
        if end >= len(data):
            return fields
        at = end + len(delimiter)
