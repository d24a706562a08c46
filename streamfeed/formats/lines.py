"""Lines as values: what JSON Lines and plain text share, under every kind of compression."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple, Protocol

from streamfeed.errors import CorruptShardError
from streamfeed.formats.protocol import Bad, Value

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BLOCK",
    "BOM",
    "LINE_LIMIT",
    "Decoded",
    "LineDecoder",
    "cut_lines",
    "is_blank",
    "line_too_long",
    "refuse_foreign",
]

BLOCK = 1 << 18
"""Bytes of lines that are decoded at a time, about: more no longer fits into a core's own cache, and is slower."""

LINE_LIMIT = 1 << 28
"""Bytes that one line may have: more is no record but damage (or a bomb), and would have to be held in memory."""

BOM = b"\xef\xbb\xbf"

_FOREIGN = (
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"PAR1\x15", "Parquet"),  # by what follows too: "PAR1" alone may well be how a text begins
    (b"ARROW1\0\0", "an Arrow file"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


_LONG = 256  # bytes of a line, from which on it is faster to let BytesIO find its end
_HEAD = 8 << 10


def cut_lines(data: bytes) -> list[bytes]:
    """Return what lies between newlines, as ``split`` does, which takes twice the time or more where lines are long."""
    if data.count(b"\n", 0, _HEAD) * _LONG > min(len(data), _HEAD):
        return data.split(b"\n")
    lines = [line[:-1] for line in BytesIO(data)]
    if data and not data.endswith(b"\n"):
        lines.pop()
    lines.append(data[data.rfind(b"\n") + 1 :])
    return lines


def is_blank(line: bytes) -> bool:
    """Return whether ``line`` holds only white space; such a line of JSON Lines is no record."""
    return not line or line.isspace()


def line_too_long() -> str:
    """Return the cause of the error for a line beyond :data:`LINE_LIMIT`."""
    return f"a line has more than {LINE_LIMIT >> 20} MiB"


class Decoded(NamedTuple):
    """Values of lines, with the indexes of the bad ones (whose ``where`` is still empty)."""

    values: list[Value]
    bad: list[int]

    def place(self, where: Callable[[int], str]) -> list[Value]:
        """Return the values, each bad one at ``where(index)``."""
        for index in self.bad:
            value = self.values[index]
            assert isinstance(value, Bad)
            self.values[index] = value._replace(where=where(index))
        return self.values


class LineDecoder(Protocol):
    """Turns lines into the texts of their records: what is in a line, whatever the lines lie in."""

    name: str
    """the format: ``jsonl``, ``lines``"""
    what: str
    """the format in words, for messages"""
    blanks: bool
    """whether a blank line is a record"""

    def decode(self, lines: list[bytes]) -> Decoded:
        """Return one value for each of ``lines``, which have no newline (and are not blank, unless ``blanks``)."""


def refuse_foreign(head: bytes, shard: str, what: str) -> None:
    """Refuse a shard that is plainly something else than ``what``, or every line of it would be a bad record."""
    found = next((name for magic, name in _FOREIGN if head.startswith(magic)), "")
    if head[257:262] == b"ustar" and b"\0" in head[:257]:
        found = "a tar"
    if found:
        cause = f"the shard is named as {what} and holds {found}"
        raise CorruptShardError(shard, "byte 0", cause, "name it by what it holds, or set the source's format")
