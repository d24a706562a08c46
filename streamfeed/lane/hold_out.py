"""Documents on their way into a window: those of the other part of a hold-out are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from streamfeed.plan.hold_out import Side

if TYPE_CHECKING:
    from streamfeed.config import HoldOut
    from streamfeed.formats.shape import Shape

__all__ = ["Sieve"]

Utf8 = bytes | memoryview


class Sieve:
    """Takes the documents of one part of ``rule``, of records as ``shape`` hands them on."""

    def __init__(self, rule: HoldOut, shape: Shape) -> None:
        self._side = Side(rule)
        self._keyed = shape.keyed
        self._lone = shape.lone

    def document(self, value: Utf8) -> tuple[Utf8, bool]:
        """Return the document in a value (without the key in front of it), and whether it is of this part."""
        if self._keyed:
            key, _, value = bytes(value).partition(b"\n")
            return value, self._side.has(orjson.loads(key).encode())
        return value, self._side.has(self._text(value))

    def texts(self, texts: list[memoryview]) -> list[memoryview]:
        """Return the texts that are of this part; where there is a key, :meth:`document` is for it."""
        return self._side.of(texts)

    def _text(self, value: Utf8) -> Utf8:
        """Return what is hashed: of a record with a text alone the same as where no function is to read it."""
        text = orjson.loads(value)[self._lone] if self._lone else None
        return text.encode() if isinstance(text, str) else value
