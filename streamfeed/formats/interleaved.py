"""One shard read in several places by turns, each in order: a table's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.storage.raw import RawFile, SizedFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from streamfeed.storage.files import ShardFile

__all__ = ["Interleaved"]


class Interleaved(SizedFile):
    """A shard that is opened once for every range expected at a time.

    An open file reads ahead along one way, and a jump drops what it has: columns that are read by turns would fetch
    their bytes again and again.
    """

    def __init__(self, file: ShardFile) -> None:
        super().__init__(file.size)
        self._file = file
        self._raws = [file.open()]
        self._ranges: list[list[tuple[int, int]]] = [[]]

    def expect_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Say that these ranges will be read by turns, each behind that of the same number of an earlier call."""
        for number, (start, stop) in enumerate(ranges):
            if number == len(self._raws):
                self._raws.append(self._file.open())
                self._ranges.append([])
            if (start, stop) not in self._ranges[number]:
                self._ranges[number] = [*self._ranges[number][-1:], (start, stop)]  # one is read, one is ahead
            self._raws[number].expect(start, stop)

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill ``buffer`` from the current position; returns the bytes read, 0 at the end alone."""
        raw = self._of(self._position)
        raw.seek(self._position)
        count = raw.readinto(buffer)
        self._position += count
        return count

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes from the current position, or all."""
        raw = self._of(self._position)
        raw.seek(self._position)
        data = raw.read(size) or b""  # raw files never have nothing at hand
        self._position += len(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only at the end of the file; the position does not matter."""
        return self._of(offset).read_at(offset, size)

    def close(self) -> None:
        """Close every file; safe to call twice."""
        for raw in self._raws:
            raw.close()
        super().close()

    def _of(self, offset: int) -> RawFile:
        """Return the file that reads ahead at ``offset``."""
        for raw, ranges in zip(self._raws, self._ranges, strict=True):
            if any(start <= offset < stop for start, stop in ranges):
                return raw
        return self._raws[0]
