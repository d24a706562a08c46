"""Corpora whose texts carry a global id, written in every format: the ground of the oracles.

A null text is written as null. A tar holds two members a record, ``.txt`` and ``.json`` (``{"id": ..., "text": ...}``);
a record whose text is null has the ``.json`` alone, so nulls are read there with the field ``json.text``.
"""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
from random import Random
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar")
SEEKABLE = ("jsonl", "parquet", "tar")
"""Kinds whose shards can be split."""

FIELDS = {"jsonl": "text", "jsonl.gz": "text", "jsonl.zst": "text", "parquet": "text", "tar": "json.text"}
"""A field for each kind that also reads nulls; ``None`` reads all kinds where no text is null."""

WORDS = (
    *(
        "stream",
        "shard",
        "lane",
        "window",
        "round",
        "Zürich",
        "naïve",
        "漢字",
        "мир",
        "🙂",
        "\t",
        "tab",
        "\u2028",
        "\\",
    ),
    *('"', "{", "}", "<", ">", "[", "]", "\r\n", "\n", "é"),
)


def texts_with_ids(count: int, *, seed: int = 0, words: int = 12, first: int = 0) -> list[str | None]:
    """Return ``count`` distinct texts; text ``i`` begins with ``id=<first + i>;`` and has 0 to ``words`` more words."""
    draw = Random(f"{seed}/{first}")
    return [" ".join([f"id={first + i};", *draw.choices(WORDS, k=draw.randint(0, words))]) for i in range(count)]


def id_of(text: str) -> int:
    """Return the id that ``text`` was written with."""
    return int(text[3 : text.index(";")])


def write_shard(kind: str, path: Path, texts: Sequence[str | None], *, parts: int = 3, first: int = 0) -> Path:
    """Write one shard of ``kind`` at ``path`` and return ``path``.

    ``parts`` is the number of row groups, gzip members or zstd frames (cut at any byte, so lines and characters
    straddle them); plain JSON Lines and tar have none. ``first`` is the id of the first record, where one is written
    beside the text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        _write_parquet(path, texts, parts, first)
    elif kind == "tar":
        _write_tar(path, texts, first)
    else:
        path.write_bytes(_compressed(kind, json_lines(texts, first=first), parts))
    return path


def write_corpus(
    kind: str, folder: Path, texts: Sequence[str | None], *, shards: int = 1, parts: int = 3, first: int = 0
) -> list[Path]:
    """Write ``texts`` in order over shards ``folder/part-00000.<kind>``, nearly even, and return the paths."""
    bounds = [len(texts) * i // shards for i in range(shards + 1)]
    return [
        write_shard(kind, folder / f"part-{i:05}.{kind}", texts[start:stop], parts=parts, first=first + start)
        for i, (start, stop) in enumerate(itertools.pairwise(bounds))
    ]


def json_lines(texts: Sequence[str | None], *, first: int = 0) -> bytes:
    """Return the records as JSON Lines, ``{"id": ..., "text": ...}`` a line."""
    return b"".join(orjson.dumps({"id": first + i, "text": text}) + b"\n" for i, text in enumerate(texts))


def cut(data: bytes, parts: int) -> list[bytes]:
    """Cut ``data`` into ``parts`` consecutive pieces of nearly even size."""
    bounds = [len(data) * i // parts for i in range(parts + 1)]
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]


def _compressed(kind: str, data: bytes, parts: int) -> bytes:
    if kind == "jsonl":
        return data
    if kind == "jsonl.gz":
        return b"".join(gzip.compress(piece, 1, mtime=0) for piece in cut(data, parts))
    if kind == "jsonl.zst":
        packer = zstandard.ZstdCompressor(level=1)
        return b"".join(packer.compress(piece) for piece in cut(data, parts))
    raise ValueError(kind)


def _write_parquet(path: Path, texts: Sequence[str | None], parts: int, first: int) -> None:
    ids = pa.array(range(first, first + len(texts)), pa.int64())
    table = pa.table({"id": ids, "text": pa.array(texts, pa.string())})
    pq.write_table(table, path, row_group_size=max(1, -(-len(texts) // parts)))


def _write_tar(path: Path, texts: Sequence[str | None], first: int) -> None:
    with tarfile.open(path, "w") as archive:
        for i, text in enumerate(texts, first):
            if text is not None:
                _add(archive, f"{i:08}.txt", text.encode())
            _add(archive, f"{i:08}.json", orjson.dumps({"id": i, "text": text}))


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
