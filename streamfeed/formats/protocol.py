"""What a format is: records plus a cursor that can be sought.

A format reads *extents* of shards. A shard's extent is cut in the format's own coordinates (bytes for JSON Lines and
tar, row groups for Parquet); formats that cannot be entered in the middle know the whole shard only. Reading is a pure
function of the shard's bytes, the extent and the cursor: the chunks may be cut elsewhere after a resume, the values may
not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile

__all__ = ["WHOLE", "Bad", "Chunk", "Cursor", "Extent", "Format", "LoneExtent", "TextsInPlace", "Value"]


class Cursor(NamedTuple):
    """Where a reader stands: go to ``seek``, then skip that many records.

    ``seek`` is the format's own (a byte offset, a row group, a compressed frame's offset); only the format reads it.
    ``Cursor()`` is the start of any extent.
    """

    seek: int = 0
    skip: int = 0


class Extent(NamedTuple):
    """A part of a shard, ``[start, stop)`` in the format's own coordinates; ``stop=-1`` is the shard's end."""

    start: int = 0
    stop: int = -1


class LoneExtent(Extent):
    """An extent whose records begin and end there, as somebody saw, and that nothing outside says anything about.

    A format that would otherwise look at the whole shard first need not.
    """

    __slots__ = ()


WHOLE = Extent()


class Bad(NamedTuple):
    """A record proved bad by its bytes: ``where`` it is ("byte 1024", "row group 3, row 17"), ``cause``, ``advice``."""

    where: str
    cause: str
    advice: str = ""


Value = str | None | Bad


class TextsInPlace(Sequence[Value]):
    """Values that are texts or None, left where a reader has them: also to be had as UTF-8 without making strings."""

    @abstractmethod
    def utf8(self, index: int) -> memoryview | None:
        """Return value ``index`` as UTF-8, valid as long as it is held."""

    @abstractmethod
    def run(self, start: int, most: int, most_bytes: int) -> tuple[memoryview, list[memoryview]] | None:
        """Return consecutive texts from ``start`` on as one piece of UTF-8, and each; at most so many, so large.

        None where the first is too large, and where any of the array is null or empty: those are looked at one by one.
        """


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records: ``values[i]`` stands at cursor ``(seek, skip + i)``.

    A value is the record's text (of several fields: their JSON text, see :class:`~streamfeed.formats.shape.Shape`),
    ``None`` where the text, or a field that may not be, is null, or :class:`Bad`.
    """

    seek: int
    skip: int
    values: Sequence[Value]


class Piece(NamedTuple):
    """An extent with the number of stored bytes that reading it takes, about."""

    extent: Extent
    nbytes: int


class Format(Protocol):
    """One file format with the text field that a run reads from it."""

    @property
    def name(self) -> str:
        """``jsonl``, ``parquet``, ``arrow``, ..."""

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard into consecutive extents of about ``max_bytes`` at most, in order, covering every record once.

        ``None`` where the format (or this shard, say a compressed one) cannot be entered in the middle. May read
        footers or indexes, never the records.
        """

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the extent's records from ``cursor`` on, in order, in chunks of bounded memory.

        Raises :class:`~streamfeed.errors.CorruptShardError` where the bytes prove the shard broken from some place on
        (after yielding every record before it), :class:`~streamfeed.errors.FieldError` where the shard has no such
        field, :class:`~streamfeed.errors.ReadError` where the store failed.
        """
