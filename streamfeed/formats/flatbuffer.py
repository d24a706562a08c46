"""Just enough of FlatBuffers to read the metadata of Arrow IPC: tables, numbers, and vectors of structs and tables.

Damaged bytes raise ``struct.error`` or ``ValueError``, or give wrong numbers; the caller checks what it uses.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["Table"]


class Table:
    """One table, whose fields are known by their number in the schema."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @classmethod
    def root(cls, data: bytes) -> Table:
        """Return the table that ``data`` holds."""
        return cls(data, _number(data, 0, "<I"))

    def number(self, field: int, code: str, default: int = 0) -> int:
        """Return the number of the ``struct`` code ``code`` at ``field``."""
        place = self._place(field)
        return _number(self._data, place, code) if place else default

    def table(self, field: int) -> Table | None:
        """Return the table at ``field``, None where there is none."""
        place = self._place(field)
        return Table(self._data, place + _number(self._data, place, "<I")) if place else None

    def structs(self, field: int, code: str) -> list[tuple[Any, ...]]:
        """Return the vector of structs at ``field``, each unpacked by ``code``."""
        start, count = self._vector(field)
        stop = start + count * struct.calcsize(code)
        if stop > len(self._data):
            raise ValueError(f"a vector of {count:,} structs does not fit")
        return list(struct.iter_unpack(code, self._data[start:stop]))

    def tables(self, field: int) -> list[Table]:
        """Return the vector of tables at ``field``."""
        start, count = self._vector(field)
        if start + 4 * count > len(self._data):
            raise ValueError(f"a vector of {count:,} tables does not fit")
        places = range(start, start + 4 * count, 4)
        return [Table(self._data, place + _number(self._data, place, "<I")) for place in places]

    def _vector(self, field: int) -> tuple[int, int]:
        place = self._place(field)
        if not place:
            return 0, 0
        start = place + _number(self._data, place, "<I")
        return start + 4, _number(self._data, start, "<I")

    def _place(self, field: int) -> int:
        """Return where ``field`` is, 0 where it has its default."""
        table = self._at - _number(self._data, self._at, "<i")
        slot = 4 + 2 * field
        if slot >= _number(self._data, table, "<H"):
            return 0
        offset = _number(self._data, table + slot, "<H")
        return self._at + offset if offset else 0


def _number(data: bytes, at: int, code: str) -> int:
    if at < 0:
        raise ValueError(f"an offset leads before the start, to {at}")
    found: int = struct.unpack_from(code, data, at)[0]
    return found
