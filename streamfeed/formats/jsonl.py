"""JSON Lines: an object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from streamfeed.formats.fields import text_of
from streamfeed.formats.jsontext import careful_text, object_in_json
from streamfeed.formats.lines import Decoded
from streamfeed.formats.protocol import Bad, Value

if TYPE_CHECKING:
    from streamfeed.formats.shape import Shape

__all__ = ["JsonDecoder", "JsonRecordDecoder"]


class _JsonLines:
    """What every decoder of JSON Lines says of itself."""

    name = "jsonl"
    what = "JSON Lines"
    blanks = False


class JsonDecoder(_JsonLines):
    """Turns lines into the texts of one field."""

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


class JsonRecordDecoder(_JsonLines):
    """Turns lines into records of several fields."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def decode(self, lines: list[bytes]) -> Decoded:
        """Return one value a line: JSON text of its fields."""
        values: list[Value] = []
        bad: list[int] = []
        for line in lines:
            record = object_in_json(line)
            value = record if isinstance(record, Bad) else self._shape.value(record)
            if value.__class__ is Bad:
                bad.append(len(values))
            values.append(value)
        return Decoded(values, bad)
