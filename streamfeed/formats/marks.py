"""Ways into a shard, as far as somebody counted its records."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from streamfeed.formats.protocol import Cursor

__all__ = ["Counted", "Mark"]


class Mark(NamedTuple):
    """A way into a shard: ``record`` records of ``nbytes`` bytes (uncompressed) lie before cursor ``(seek, skip)``."""

    record: int
    nbytes: int
    seek: int
    skip: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A shard's records, their bytes without compression, and marks in order, the first at its beginning.

    ``places``: the byte of the file where the records behind each mark begin, where ``seek`` is none; it is only told.
    ``regular``: what lies between two marks can be read alone, see :class:`~streamfeed.formats.protocol.LoneExtent`.
    """

    records: int
    nbytes: int
    marks: tuple[Mark, ...] = (Mark(0, 0, 0, 0),)
    places: tuple[int, ...] = ()
    regular: bool = False

    def before(self, record: int) -> Mark:
        """Return the last mark at or before ``record``."""
        return self.marks[self._index(record)]

    def _index(self, record: int) -> int:
        return max(0, bisect_right(self.marks, record, key=lambda mark: mark.record) - 1)

    def cursor(self, record: int) -> Cursor:
        """Return the cursor of ``record``."""
        mark = self.before(record)
        return Cursor(mark.seek, mark.skip + record - mark.record)

    def bytes_before(self, record: int) -> int:
        """Return the bytes of the records before ``record``, even between two marks."""
        if record >= self.records:
            return self.nbytes
        index = self._index(record)
        mark = self.marks[index]
        end = self.marks[index + 1] if index + 1 < len(self.marks) else Mark(self.records, self.nbytes, 0, 0)
        inside = (end.nbytes - mark.nbytes) * (record - mark.record) // max(1, end.record - mark.record)
        return mark.nbytes + inside

    def to_json(self) -> dict[str, Any]:
        """Return this as what JSON can say."""
        said: dict[str, Any] = {"records": self.records, "bytes": self.nbytes}
        said["marks"] = [list(mark) for mark in self.marks]
        optional = {"places": list(self.places), "regular": self.regular}
        return said | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` gave."""
        marks = tuple(Mark(*mark) for mark in found["marks"])
        places = tuple(found.get("places", ()))
        return cls(found["records"], found["bytes"], marks, places, bool(found.get("regular", False)))
