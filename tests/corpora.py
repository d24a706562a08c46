"""Corpora whose texts carry a global id, written in every format: the ground of the oracles.

A null text is written as null. A tar holds two members a record, ``.txt`` and ``.json`` (``{"id": ..., "text": ...}``);
a record whose text is null has the ``.json`` alone, so nulls are read there with the field ``json.text``.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import tarfile
from random import Random
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar", "arrow", "arrows", "tar.gz", "csv", "lines")
"""The kinds of shard that the oracles run on. ``arrow`` is an Arrow file here and ``arrows`` an Arrow stream."""

MORE_KINDS = ("tar.zst", "csv.gz", "csv.zst", "tsv", "tsv.gz", "tsv.zst", "lines.gz", "lines.zst")
"""Kinds that are made of parts of those above: the tests of formats alone run on them."""

CURSOR_KINDS = tuple(kind for kind in KINDS if kind not in {"arrow", "tar.gz", "lines"})
"""Those of the oracles' kinds whose cursors differ: ``arrow``'s are as ``parquet``'s, and so on."""

TOPOLOGY_KINDS = tuple(kind for kind in CURSOR_KINDS if kind != "csv")
"""Kinds for the oracle that takes longest; ``csv`` is cut into strides as ``jsonl.gz`` is."""

TOKENS = "tokens"
"""Shards of tokens, of the small tokenizer of the suite: streams read them, and tests of texts cannot."""

ALL_KINDS = (*KINDS, *MORE_KINDS)
SEEKABLE = ("jsonl", "parquet", "tar", "arrow", "arrows", "lines")
"""Kinds whose shards can be split."""

NO_NULLS = ("csv", "tsv", "lines")
"""Formats that cannot tell a null from an empty text: it is written as one."""

FIELDS: dict[str, str] = {kind: "json.text" if kind.startswith("tar") else "text" for kind in (*ALL_KINDS, TOKENS)}
"""A field for each kind that also reads nulls; ``None`` reads all kinds where no text is null."""

FORCED = {kind: "lines" for kind in ALL_KINDS if kind.startswith("lines")}
"""The format that a source must name, where the suffix does not say it."""

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


def kind_of_reader(kind: str) -> str:
    """Return the kind as :func:`streamfeed.formats.detect.make_format` takes it."""
    return "arrow" if kind == "arrows" else kind


def as_written(kind: str, texts: Sequence[str | None]) -> list[str | None]:
    """Return ``texts`` as shards of ``kind`` can hold them: not all have nulls, and in lines there are no newlines."""
    name = kind.partition(".")[0]
    if name == "lines":
        return [re.sub("[\r\n]+", " ", text or "") for text in texts]
    return [text or "" for text in texts] if name in NO_NULLS else list(texts)


def id_of(text: str) -> int:
    """Return the id that ``text`` was written with."""
    return int(text[3 : text.index(";")])


def write_shard(kind: str, path: Path, texts: Sequence[str | None], *, parts: int = 3, first: int = 0) -> Path:
    """Write one shard of ``kind`` at ``path`` and return ``path``.

    ``parts`` is the number of row groups, record batches, gzip members or zstd frames (cut at any byte, so lines and
    characters straddle them); what is not compressed and has no groups has none. ``first`` is the id of the first
    record, where one is written beside the text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name, _, packing = kind.partition(".")
    if name == TOKENS:
        from tests.token_shards import write_tokens

        write_tokens(path, texts, parts)
    elif name == "parquet":
        _write_parquet(path, texts, parts, first)
    elif name in {"arrow", "arrows"}:
        _write_arrow(path, texts, parts, first, stream=name == "arrows")
    else:
        path.write_bytes(_packed(packing, _content(name, as_written(kind, texts), first), parts))
    return path


def write_records(kind: str, path: Path, records: Sequence[dict[str, Any]], *, parts: int = 3) -> Path:
    """Write one shard of records of several fields at ``path``, as :func:`write_shard` does of texts.

    A tar has a member for each field that is not null (``text`` is ``.txt``, any other ``.<key>``; what is no string as
    JSON) and a ``.json`` of the whole record. CSV has the same texts, and an empty one for null; lines have ``text``
    alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name, _, packing = kind.partition(".")
    keys = list(dict.fromkeys(key for record in records for key in record))
    if name in {"parquet", "arrow", "arrows"}:
        table = pa.table({key: pa.array([record.get(key) for record in records]) for key in keys})
        rows = max(1, -(-len(records) // parts))
        if name == "parquet":
            pq.write_table(table, path, row_group_size=rows)
            return path
        with (pa.ipc.new_stream if name == "arrows" else pa.ipc.new_file)(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        return path
    path.write_bytes(_packed(packing, _record_content(name, records, keys), parts))
    return path


def write_record_corpus(
    kind: str, folder: Path, records: Sequence[dict[str, Any]], *, shards: int = 1, parts: int = 3
) -> list[Path]:
    """Write ``records`` in order over shards, as :func:`write_corpus` does, and return the paths."""
    bounds = [len(records) * i // shards for i in range(shards + 1)]
    return [
        write_records(kind, folder / f"part-{i:05}.{kind}", records[start:stop], parts=parts)
        for i, (start, stop) in enumerate(itertools.pairwise(bounds))
    ]


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


def csv_rows(texts: Sequence[str | None], *, first: int = 0, delimiter: str = ",") -> bytes:
    """Return the records as CSV with a header, ``id,text``, quoted where they must be."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerows([("id", "text"), *((first + i, text or "") for i, text in enumerate(texts))])
    return buffer.getvalue().encode()


def _content(name: str, texts: Sequence[str | None], first: int) -> bytes:
    if name == "jsonl":
        return json_lines(texts, first=first)
    if name == "tar":
        return _tar(texts, first)
    if name in {"csv", "tsv"}:
        return csv_rows(texts, first=first, delimiter="," if name == "csv" else "\t")
    if name == "lines":
        return b"".join((text or "").encode() + b"\n" for text in texts)
    raise ValueError(name)


def _record_content(name: str, records: Sequence[dict[str, Any]], keys: list[str]) -> bytes:
    if name == "jsonl":
        return b"".join(orjson.dumps(record) + b"\n" for record in records)
    if name == "tar":
        return _record_tar(records)
    if name in {"csv", "tsv"}:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, delimiter="," if name == "csv" else "\t")
        writer.writerows([keys, *([_as_text(record.get(key)) for key in keys] for record in records)])
        return buffer.getvalue().encode()
    if name == "lines":
        return b"".join(re.sub("[\r\n]+", " ", record["text"] or "").encode() + b"\n" for record in records)
    raise ValueError(name)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()


def _record_tar(records: Sequence[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for i, record in enumerate(records):
            for key, value in record.items():
                if value is not None:
                    _add(archive, f"{i:08}.{'txt' if key == 'text' else key}", _as_text(value).encode())
            _add(archive, f"{i:08}.json", orjson.dumps(record))
    return buffer.getvalue()


def _packed(packing: str, data: bytes, parts: int) -> bytes:
    if packing == "gz":
        return b"".join(gzip.compress(piece, 1, mtime=0) for piece in cut(data, parts))
    if packing == "zst":
        packer = zstandard.ZstdCompressor(level=1)
        return b"".join(packer.compress(piece) for piece in cut(data, parts))
    return data


def _write_arrow(path: Path, texts: Sequence[str | None], parts: int, first: int, *, stream: bool) -> None:
    ids = pa.array(range(first, first + len(texts)), pa.int64())
    table = pa.table({"id": ids, "text": pa.array(texts, pa.string())})
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, -(-len(texts) // parts)))


def _write_parquet(path: Path, texts: Sequence[str | None], parts: int, first: int) -> None:
    ids = pa.array(range(first, first + len(texts)), pa.int64())
    table = pa.table({"id": ids, "text": pa.array(texts, pa.string())})
    pq.write_table(table, path, row_group_size=max(1, -(-len(texts) // parts)))


def _tar(texts: Sequence[str | None], first: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for i, text in enumerate(texts, first):
            if text is not None:
                _add(archive, f"{i:08}.txt", text.encode())
            _add(archive, f"{i:08}.json", orjson.dumps({"id": i, "text": text}))
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
