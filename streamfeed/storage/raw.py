"""What every format reads from: an unbuffered file whose bytes are somewhere."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["RawFile", "SizedFile"]


class RawFile(io.RawIOBase):
    """A read-only file that can be sought; every failure of the store is a :class:`~streamfeed.errors.ReadError`."""

    @abstractmethod
    def readinto(self, buffer: Buffer, /) -> int:
        """Fill ``buffer`` from the current position; returns the bytes read, 0 at the end alone."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only at the end of the file; the position does not matter."""

    @abstractmethod
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to ``offset``; reads nothing."""

    @abstractmethod
    def tell(self) -> int:
        """Return the position in bytes."""

    def expect(self, start: int, stop: int) -> None:
        """Say that the bytes ``[start, stop)`` will be read, mostly in order, behind those already expected.

        A remote file reads ahead in expected ranges, as far as they go and no further; outside of them it fetches what
        is asked for and nothing else. A file on a local disk does nothing.
        """

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True


class SizedFile(RawFile):
    """A file of ``size`` bytes that keeps its own position."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to ``offset``; reads nothing."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position
