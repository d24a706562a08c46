"""Which format a shard has: by suffix, else by its first bytes."""

from __future__ import annotations

import contextlib
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from streamfeed.errors import ConfigError, CorruptShardError, SourceError
from streamfeed.formats.lines import BOM
from streamfeed.formats.recipe import BY_DATASETS
from streamfeed.formats.shape import Field
from streamfeed.storage.urls import name_of, redact

if TYPE_CHECKING:
    from streamfeed.formats.compressed import Compression
    from streamfeed.formats.lines import LineDecoder
    from streamfeed.formats.protocol import Format
    from streamfeed.formats.shape import Shape
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["FORMATS", "KINDS", "kind_of", "make_format", "sniff"]

FORMATS = ("jsonl", "parquet", "arrow", "tar", "text", "lines", "csv", "tsv", "tokens")
"""What a source's ``format`` may be."""

_PACKED = ("jsonl", "tar", "text", "lines", "csv", "tsv")
"""Formats whose shards may be compressed as a whole."""

KINDS = (*FORMATS, *(f"{name}.{compression}" for name in _PACKED for compression in ("gz", "zst")))
"""Every kind of shard that can be read."""

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".tar": "tar",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".tokens": "tokens",
}
_COMPRESSIONS = {".gz": "gz", ".gzip": "gz", ".zst": "zst", ".zstd": "zst"}
_COMPRESSED_TAR = {".tgz": "gz", ".tzst": "zst"}
_UNREAD = {".bz2", ".xz", ".lz4", ".br", ".zip", ".7z", ".tbz", ".tbz2", ".txz"}
_ADVICE = (
    "shards are JSON Lines, tar, text, CSV or TSV (plain, .gz, .zst), Parquet or Arrow; "
    f"set the source's format to one of {', '.join(FORMATS)}"
)
_HEAD = 512
_USTAR = slice(257, 262)


def kind_of(url: str, forced: str | None) -> str | None:
    """Return the kind that the suffix of ``url`` says, ``None`` where it says nothing.

    ``forced`` wins over the suffix, but for the compression, which the suffix says. Raises
    :class:`~streamfeed.errors.ConfigError` for an unknown ``forced``, :class:`~streamfeed.errors.SourceError` for a
    compression that is not read.
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(name_of(url)).suffixes[-2:]]
    last = suffixes[-1] if suffixes else ""
    compression = _COMPRESSIONS.get(last) or _COMPRESSED_TAR.get(last)
    if forced is not None:
        return _forced(forced, compression)
    inner = ".tar" if last in _COMPRESSED_TAR else "".join(suffixes[-2:-1]) if compression else last
    if last in _UNREAD:
        raise SourceError(f"{redact(url)}: {last} is not read; compress it with gzip or zstd, or not at all")
    kind = _SUFFIXES.get(inner)
    if compression is None or kind is None:
        return kind
    return f"{kind}.{compression}" if kind in _PACKED else None


def _forced(forced: str, compression: str | None) -> str:
    if forced not in KINDS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, got {forced!r}")
    return f"{forced}.{compression}" if forced in _PACKED and compression else forced


def sniff(file: ShardFile) -> str:
    """Return the kind that the shard's first bytes say.

    Raises :class:`~streamfeed.errors.CorruptShardError`, naming the formats there are, where they say none.
    """
    with closing(file.open()) as raw:
        head = raw.read_at(0, _HEAD)
        compression: Compression | None = None
        if head.startswith(b"\x1f\x8b"):
            compression = "gz"
        elif head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
            compression = "zst"
        if compression is not None:
            return f"{'tar' if _is_tar(_unpacked(raw, file, compression)) else 'jsonl'}.{compression}"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if _is_tar(head):
        return "tar"
    if head.removeprefix(BOM).lstrip().startswith(b"{"):
        return "jsonl"
    cause = "neither the suffix nor the first bytes say what format this is" if head else "the shard is empty"
    raise CorruptShardError(file.shard, "byte 0", cause, _ADVICE)


def _is_tar(head: bytes) -> bool:
    return head[_USTAR] == b"ustar"


def _unpacked(raw: RawFile, file: ShardFile, compression: Compression) -> bytes:
    """Return the first bytes of what is compressed; nothing where they are damaged: reading says what is wrong."""
    from streamfeed.formats.compressed import unpacked

    data = b""
    with contextlib.suppress(CorruptShardError):
        for step in unpacked(raw, file, compression):
            data += step.data
            if len(data) >= _HEAD:
                break
    return data


def make_format(kind: str, shape: Shape) -> Format:
    """Return the reader of ``kind``, one of :data:`KINDS` or a recipe's, for records of ``shape``.

    A text without a name is the field ``text``, and in a tar the ``txt`` member. A record of several fields is JSON
    text of them (see :class:`~streamfeed.formats.shape.Shape`). Raises
    :class:`~streamfeed.errors.ConfigError` for a field of plain text, which has none.
    """
    if kind.startswith(BY_DATASETS):
        from streamfeed.formats.hub import HubShards
        from streamfeed.formats.recipe import Recipe

        return HubShards(Recipe.parse(kind), shape.named("text"))
    name, _, packing = kind.partition(".")
    if kind not in KINDS:
        raise ConfigError(f"there is no kind {kind!r}; kinds are {', '.join(KINDS)}")
    if name == "tokens":
        from streamfeed.formats.tokens import Tokens

        return Tokens(shape)
    compression = cast("Compression | None", packing or None)
    if name in {"text", "lines"}:
        return _text(name, shape, compression)
    shape = shape.named("txt" if name == "tar" else "text")
    if name == "parquet":
        from streamfeed.formats.parquet import Parquet

        return Parquet(shape)
    if name == "arrow":
        from streamfeed.formats.arrow_ipc import ArrowIpc

        return ArrowIpc(shape)
    if name == "tar":
        return _tar(shape, compression)
    if name in {"csv", "tsv"}:
        from streamfeed.formats.csv_rows import CsvRows

        return CsvRows(name, shape, compression)
    from streamfeed.formats.jsonl import JsonDecoder, JsonRecordDecoder

    return _lines(JsonDecoder(shape.text or "text") if shape.plain else JsonRecordDecoder(shape), compression)


def _tar(shape: Shape, compression: Compression | None) -> Format:
    if compression is None:
        from streamfeed.formats.tar import Tar

        return Tar(shape)
    from streamfeed.formats.tar_stream import TarStream

    return TarStream(shape, compression)


def _text(name: str, shape: Shape, compression: Compression | None) -> Format:
    from streamfeed.formats.text import TextDecoder, WholeText

    for field in shape.fields or [Field("text", shape.text, "text")]:
        text = field.name
        if text not in {None, "text"}:
            advice = "leave the source's text out" if shape.texts else "a map function can make it of fields=['text']"
            advice = "hold out by 'text', or by 'shard'" if field.kind == "key" else advice
            raise ConfigError(f"plain text has no fields, so none is called {text!r}: {advice}")
    shape = shape.named("text")
    return WholeText(compression, shape) if name == "text" else _lines(TextDecoder(shape), compression)


def _lines(decoder: LineDecoder, compression: Compression | None) -> Format:
    if compression is None:
        from streamfeed.formats.plain import PlainLines

        return PlainLines(decoder)
    from streamfeed.formats.compressed import CompressedLines

    return CompressedLines(decoder, compression)
