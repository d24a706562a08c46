"""JSON Lines: an object a line."""

from __future__ import annotations

import orjson

from streamfeed.formats.fields import text_of
from streamfeed.formats.jsontext import careful_text
from streamfeed.formats.lines import Decoded
from streamfeed.formats.protocol import Bad, Value

__all__ = ["JsonDecoder"]


class JsonDecoder:
    """Turns lines into the texts of one field."""

    name = "jsonl"
    what = "JSON Lines"
    blanks = False

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
