"""Which format a shard has: by suffix, else by its first bytes."""

from __future__ import annotations

from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from streamfeed.errors import ConfigError, CorruptShardError, SourceError
from streamfeed.formats.lines import BOM
from streamfeed.storage.urls import name_of, redact

if TYPE_CHECKING:
    from streamfeed.formats.protocol import Format
    from streamfeed.storage.files import ShardFile

__all__ = ["FORMATS", "KINDS", "kind_of", "make_format", "sniff"]

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar")
"""Every kind of shard that can be read."""

FORMATS = ("jsonl", "parquet", "tar")
"""What a source's ``format`` may be."""

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".tar": "tar",
}
_COMPRESSIONS = {".gz": "gz", ".gzip": "gz", ".zst": "zst", ".zstd": "zst"}
_COMPRESSED_TAR = {".tgz", ".tzst", ".tbz", ".tbz2", ".txz"}
_ADVICE = (
    f"shards are JSON Lines (plain, .gz, .zst), Parquet or tar; set the source's format to one of {', '.join(FORMATS)}"
)
_HEAD = 512
_USTAR = slice(257, 262)


def kind_of(url: str, forced: str | None) -> str | None:
    """Return the kind that the suffix of ``url`` says, ``None`` where it says nothing.

    ``forced`` wins over the suffix, but for the compression of JSON Lines, which the suffix says. Raises
    :class:`~streamfeed.errors.ConfigError` for an unknown ``forced``, :class:`~streamfeed.errors.SourceError` for a
    compressed tar, which is not read.
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(name_of(url)).suffixes[-2:]]
    last = suffixes[-1] if suffixes else ""
    compression = _COMPRESSIONS.get(last)
    inner = "".join(suffixes[-2:-1]) if compression else last
    if forced is not None:
        return _forced(forced, compression)
    if last in _COMPRESSED_TAR or (inner == ".tar" and compression):
        raise SourceError(f"{redact(url)}: compressed tars are not read yet; decompress it to a plain .tar")
    kind = _SUFFIXES.get(inner)
    if compression is None:
        return kind
    return f"jsonl.{compression}" if kind == "jsonl" else None


def _forced(forced: str, compression: str | None) -> str:
    if forced not in KINDS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, got {forced!r}")
    return f"jsonl.{compression}" if forced == "jsonl" and compression else forced


def sniff(file: ShardFile) -> str:
    """Return the kind that the shard's first bytes say.

    Raises :class:`~streamfeed.errors.CorruptShardError`, naming the formats there are, where they say none.
    """
    with closing(file.open()) as raw:
        head = raw.read(_HEAD) or b""
    if head.startswith(b"\x1f\x8b"):
        return "jsonl.gz"
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "jsonl.zst"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head[_USTAR] == b"ustar":
        return "tar"
    if head.removeprefix(BOM).lstrip().startswith(b"{"):
        return "jsonl"
    cause = "neither the suffix nor the first bytes say what format this is" if head else "the shard is empty"
    raise CorruptShardError(file.shard, "byte 0", cause, _ADVICE)


def make_format(kind: str, text: str | None) -> Format:
    """Return the reader of ``kind``, one of :data:`KINDS`, for the field ``text``.

    ``None`` is the field ``text``, and in a tar the ``txt`` member.
    """
    if kind == "jsonl":
        from streamfeed.formats.jsonl import JsonLines

        return JsonLines(text or "text")
    if kind in {"jsonl.gz", "jsonl.zst"}:
        from streamfeed.formats.compressed import CompressedLines

        return CompressedLines(text or "text", "gz" if kind.endswith("gz") else "zst")
    if kind == "parquet":
        from streamfeed.formats.parquet import Parquet

        return Parquet(text or "text")
    if kind == "tar":
        from streamfeed.formats.tar import Tar

        return Tar(text or "txt")
    raise ConfigError(f"there is no kind {kind!r}; kinds are {', '.join(KINDS)}")
