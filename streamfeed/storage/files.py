"""A shard as a readable file, with every byte counted."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from streamfeed.errors import ReadError
from streamfeed.stats import ReadStats
from streamfeed.storage.raw import RawFile
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

__all__ = ["CountingFile", "Edge", "ShardFile", "changed", "local_version"]


class CountingFile(RawFile):
    """An unbuffered read-only file that counts what is asked of it and turns failures into :class:`ReadError`."""

    def __init__(self, raw: io.FileIO, stats: ReadStats, shard: str) -> None:
        self._raw = raw
        self._stats = stats
        self._shard = shard

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill ``buffer`` from the current position; returns the bytes read, 0 at the end."""
        view = memoryview(buffer).cast("B")
        try:
            with self._stats.stages.read.busy:
                count = cast("int", self._raw.readinto(view))
        except OSError as error:
            raise ReadError(self._shard, f"byte {self._raw.tell()}", f"the read failed: {error}") from error
        self._count(count)
        return count

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes from the current position (-1: all), without the copy that the default makes."""
        try:
            with self._stats.stages.read.busy:
                data = cast("bytes", self._raw.read(size))
        except OSError as error:
            raise ReadError(self._shard, f"byte {self._raw.tell()}", f"the read failed: {error}") from error
        self._count(len(data))
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only at the end of the file; the position does not matter."""
        data = self._part(offset, size)
        while 0 < len(data) < size and (more := self._part(offset + len(data), size - len(data))):
            data += more
        return data

    def _part(self, offset: int, size: int) -> bytes:
        try:
            with self._stats.stages.read.busy:
                data = os.pread(self._raw.fileno(), size, offset)
        except OSError as error:
            raise ReadError(self._shard, f"byte {offset}", f"the read failed: {error}") from error
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        self._stats.reads += 1
        self._stats.bytes += size
        self._stats.stages.read.count(1, size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to ``offset``; reads nothing."""
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._raw.tell()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._raw.close()
        super().close()


class Edge(Protocol):
    """A store behind a network: where shards that are no local files come from."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The source's storage options; they may hold secrets."""

    def open(self, file: ShardFile) -> RawFile:
        """Open ``file`` for reading; raises :class:`ReadError` where it is gone, or another than planned."""

    def confirm(self, file: ShardFile) -> None:
        """Raise :class:`ReadError` where ``file`` is gone, or another than planned."""


@dataclass(frozen=True, slots=True, repr=False)
class ShardFile:
    """One shard: where it is, how large it was when the run planned, and who counts its bytes.

    ``url`` opens it, ``shard`` is its redacted name for messages. ``version`` is what it was when the run planned (see
    :class:`~streamfeed.storage.listing.Listing`), empty where nobody knows. ``edge`` is the store of a shard that is no
    local file.
    """

    url: str
    size: int
    stats: ReadStats = field(default_factory=ReadStats, compare=False)
    version: str = ""
    edge: Edge | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"ShardFile({self.shard!r}, {self.size}, version={self.version!r})"

    @property
    def shard(self) -> str:
        """The redacted name that errors and logs use."""
        return redact(self.url)

    @property
    def local(self) -> bool:
        """Whether the bytes are on a local disk, where seeking and many small reads are cheap."""
        return self.edge is None

    @property
    def options(self) -> Mapping[str, Any]:
        """The source's storage options, for a format that opens the shard by itself."""
        return {} if self.edge is None else self.edge.options

    def open(self) -> RawFile:
        """Open for reading, unbuffered.

        Raises :class:`ReadError` when it cannot be opened, or when it is another than planned.
        """
        if self.edge is not None:
            return self.edge.open(self)
        try:
            raw = Path(self.url).open("rb", buffering=0)  # noqa: SIM115 (the caller closes what wraps it)
        except OSError as error:
            raise ReadError(self.shard, "", f"cannot be opened: {error}") from error
        self.stats.opens += 1
        try:
            self._compare(os.fstat(raw.fileno()))
        except ReadError:
            raw.close()
            raise
        return CountingFile(raw, self.stats, self.shard)

    def confirm(self) -> None:
        """Raise :class:`ReadError` where the shard is another than planned; asked when a unit was read to its end."""
        if self.edge is not None:
            self.edge.confirm(self)
            return
        try:
            found = os.stat(self.url)  # noqa: PTH116 (as in the listing)
        except OSError as error:
            raise ReadError(self.shard, "", f"was removed while it was read: {error}") from error
        self._compare(found)

    def _compare(self, found: os.stat_result) -> None:
        if found.st_size != self.size or (self.version and self.version != local_version(found)):
            raise changed(self.shard, (self.size, self.version), (found.st_size, local_version(found)))


def local_version(found: os.stat_result) -> str:
    """Return the version of a local file: its bytes and the time of its last change, in ns."""
    return f"{found.st_size}-{found.st_mtime_ns}"


def changed(shard: str, listed: tuple[int, str], found: tuple[int, str]) -> ReadError:
    """Return the error for a shard of another ``(size, version)`` than listed."""
    cause = f"has {found[0]:,} bytes now and had {listed[0]:,} when the run planned"
    if listed[0] == found[0]:
        cause = f"was overwritten: it is version {found[1]} now and was {listed[1]} when the run planned"
    return ReadError(shard, "", cause, "restore the shard, or start a new run on the new list")
