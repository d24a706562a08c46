"""A shard as a readable file, with every byte counted."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from streamfeed.errors import ReadError
from streamfeed.stats import ReadStats
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CountingFile", "ShardFile"]


class CountingFile(io.RawIOBase):
    """An unbuffered read-only file that counts what is asked of it and turns failures into :class:`ReadError`."""

    def __init__(self, raw: io.FileIO, stats: ReadStats, shard: str) -> None:
        self._raw = raw
        self._stats = stats
        self._shard = shard

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill ``buffer`` from the current position; returns the bytes read, 0 at the end."""
        view = memoryview(buffer).cast("B")
        try:
            count = cast("int", self._raw.readinto(view))
        except OSError as error:
            raise ReadError(self._shard, f"byte {self._raw.tell()}", f"the read failed: {error}") from error
        self._stats.reads += 1
        self._stats.bytes += count
        return count

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only at the end of the file; the position does not matter."""
        data = self._part(offset, size)
        while 0 < len(data) < size and (more := self._part(offset + len(data), size - len(data))):
            data += more
        return data

    def _part(self, offset: int, size: int) -> bytes:
        try:
            data = os.pread(self._raw.fileno(), size, offset)
        except OSError as error:
            raise ReadError(self._shard, f"byte {offset}", f"the read failed: {error}") from error
        self._stats.reads += 1
        self._stats.bytes += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to ``offset``; reads nothing."""
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._raw.tell()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._raw.close()
        super().close()


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One shard: where it is, how large it was when the run planned, and who counts its bytes.

    ``url`` opens it, ``shard`` is its redacted name for messages.
    """

    url: str
    size: int
    stats: ReadStats = field(default_factory=ReadStats, compare=False)

    @property
    def shard(self) -> str:
        """The redacted name that errors and logs use."""
        return redact(self.url)

    def open(self) -> CountingFile:
        """Open for reading, unbuffered.

        Raises :class:`ReadError` when it cannot be opened, or when its size is no longer the planned one.
        """
        try:
            raw = Path(self.url).open("rb", buffering=0)  # noqa: SIM115 (the caller closes what wraps it)
        except OSError as error:
            raise ReadError(self.shard, "", f"cannot be opened: {error}") from error
        self.stats.opens += 1
        found = raw.seek(0, io.SEEK_END)
        raw.seek(0)
        if found != self.size:
            raw.close()
            cause = f"has {found:,} bytes now and had {self.size:,} when the run planned"
            raise ReadError(self.shard, "", cause, "restore the shard, or start a new run on the new list")
        return CountingFile(raw, self.stats, self.shard)
