"""The records of one unit, one at a time, with the place of the next one always known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError
from streamfeed.formats.protocol import Chunk, Cursor, Format, TextsInPlace, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfeed.plan.shards import Unit
    from streamfeed.storage.store import Store

__all__ = ["UnitRecords"]


class UnitRecords:
    """Reads a unit from a cursor on; :meth:`take` hands out all its records, the caller applies the stride.

    ``record`` is the ordinal in the unit of the next record, ``cursor`` where a fresh reader finds it.
    """

    def __init__(self, unit: Unit, reader: Format, store: Store, cursor: Cursor, record: int) -> None:
        self.file = store.file(unit.url, unit.size, unit.version)
        self.stride = unit.stride
        self._decoding = self.file.stats.stages.decode
        self.record = record
        self._seek, self._skip = cursor
        self._chunks: Iterator[Chunk] = reader.read(self.file, unit.extent, cursor)
        self._values: Sequence[Value] = []
        self._in_place: TextsInPlace | None = None
        self._next = 0

    @property
    def cursor(self) -> Cursor:
        """Where the next record stands."""
        return Cursor(self._seek, self._skip + self._next)

    def fill(self) -> bool:
        """Make sure that a record is at hand; False at the unit's end. Raises what the reader raises."""
        while self._next >= len(self._values):
            try:
                with self._decoding.busy:
                    chunk = next(self._chunks, None)
            except CorruptShardError:
                self.file.confirm()  # what was overwritten while it was read is a failure, not a shard to pass over
                raise
            if chunk is None:
                self.file.confirm()
                return False
            self._decoding.count(len(chunk.values))
            self._seek, self._skip, self._values, self._next = chunk.seek, chunk.skip, chunk.values, 0
            self._in_place = chunk.values if isinstance(chunk.values, TextsInPlace) else None
        return True

    def take(self) -> Value | memoryview:
        """Hand out the next record, as UTF-8 where it lies so in memory; :meth:`fill` must have returned True."""
        index = self._next
        self._next = index + 1
        self.record += 1
        return self._values[index] if self._in_place is None else self._in_place.utf8(index)

    def take_run(self, most: int, most_bytes: int) -> tuple[memoryview, list[memoryview]] | None:
        """Hand out consecutive texts at once, at most so many and so large: as one piece of UTF-8, and each.

        None, with nothing taken, where the records must be looked at one by one: take :meth:`take` then.
        """
        if self._in_place is None or self.stride.step > 1:
            return None
        found = self._in_place.run(self._next, most, most_bytes)
        if found is not None:
            self._next += len(found[1])
            self.record += len(found[1])
        return found

    def give_back(self) -> None:
        """Undo the last :meth:`take`: its record is the next one again."""
        self._next -= 1
        self.record -= 1

    def close(self) -> None:
        """Close the shard."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
