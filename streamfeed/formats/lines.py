"""JSON Lines as values: what every kind of compression shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

from streamfeed.formats.fields import text_of
from streamfeed.formats.jsontext import careful_text
from streamfeed.formats.protocol import Bad, Value

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BLOCK", "BOM", "LINE_LIMIT", "LineDecoder", "is_blank", "line_too_long"]

BLOCK = 1 << 18
"""Bytes of lines that are decoded at a time, about: more no longer fits into a core's own cache, and is slower."""

LINE_LIMIT = 1 << 28
"""Bytes that one line may have: more is no record but damage (or a bomb), and would have to be held in memory."""

BOM = b"\xef\xbb\xbf"


def is_blank(line: bytes) -> bool:
    """Return whether ``line`` holds only white space; such a line is no record."""
    return not line or line.isspace()


def line_too_long() -> str:
    """Return the cause of the error for a line beyond :data:`LINE_LIMIT`."""
    return f"a line has more than {LINE_LIMIT >> 20} MiB"


class Decoded(NamedTuple):
    """Values of lines, with the indexes of the bad ones (whose ``where`` is still empty)."""

    values: list[Value]
    bad: list[int]

    def place(self, where: Callable[[int], str]) -> list[Value]:
        """Return the values, each bad one at ``where(index)``."""
        for index in self.bad:
            value = self.values[index]
            assert isinstance(value, Bad)
            self.values[index] = value._replace(where=where(index))
        return self.values


class LineDecoder:
    """Turns lines (none blank, without their newline) into the texts of one field."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._nested = "." in field

    def decode(self, lines: list[bytes]) -> Decoded:
        """Return one value a line."""
        values: list[Value] = []
        bad: list[int] = []
        loads, field, nested, append = orjson.loads, self._field, self._nested, values.append
        for line in lines:
            try:
                value = text_of(loads(line), field) if nested else loads(line)[field]
            except (ValueError, KeyError, TypeError):
                value = careful_text(line, field, "", "the line")
            if value.__class__ is not str and value is not None:
                if value.__class__ is not Bad:
                    value = text_of({field: value}, field)
                bad.append(len(values))
            append(value)
        return Decoded(values, bad)
