"""A shard's kind by suffix, by force, by its first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfeed.errors import ConfigError, CorruptShardError, FieldError, SourceError
from streamfeed.formats.detect import kind_of, make_format, sniff
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.formats.shape import Shape
from streamfeed.storage.files import ShardFile
from tests.corpora import ALL_KINDS, kind_of_reader, write_shard

if TYPE_CHECKING:
    from pathlib import Path

TOLD = [kind for kind in ALL_KINDS if not kind.startswith(("csv", "tsv", "lines"))]
"""Kinds that the first bytes tell."""


@pytest.mark.parametrize(
    ("url", "forced", "kind"),
    [
        ("a.jsonl", None, "jsonl"),
        ("a.ndjson", None, "jsonl"),
        ("a.JSON", None, "jsonl"),
        ("v1.0/a.jsonl.gz", None, "jsonl.gz"),
        ("a.json.gzip", None, "jsonl.gz"),
        ("a.jsonl.zst", None, "jsonl.zst"),
        ("a.jsonl.zstd", None, "jsonl.zst"),
        ("a.parquet", None, "parquet"),
        ("a.pq", None, "parquet"),
        ("a.tar", None, "tar"),
        ("a.b.tar", None, "tar"),
        ("https://h/a.jsonl.gz?versionId=a.tar", None, "jsonl.gz"),
        ("a.gz", None, None),
        ("a.bin", None, None),
        ("a.parquet.gz", None, None),
        ("a.arrow", None, "arrow"),
        ("a.arrows", None, "arrow"),
        ("a.feather", None, "arrow"),
        ("a.ipc", None, "arrow"),
        ("a.tar.gz", None, "tar.gz"),
        ("a.tgz", None, "tar.gz"),
        ("a.b.tar.zst", None, "tar.zst"),
        ("a.tzst", None, "tar.zst"),
        ("a.txt", None, "text"),
        ("a.md", None, "text"),
        ("a.text.gz", None, "text.gz"),
        ("a.csv", None, "csv"),
        ("a.csv.zst", None, "csv.zst"),
        ("a.TSV.gz", None, "tsv.gz"),
        ("a.txt", "lines", "lines"),
        ("a.txt.zst", "lines", "lines.zst"),
        ("a.tgz", "tar", "tar.gz"),
        ("a.parquet.gz", "parquet", "parquet"),
        ("a", None, None),
        (".jsonl", None, None),
        ("v.parquet/a", None, None),
        ("a.txt.gz", "jsonl", "jsonl.gz"),
        ("a.zst", "jsonl", "jsonl.zst"),
        ("a.txt", "jsonl", "jsonl"),
        ("a.jsonl", "parquet", "parquet"),
        ("a.bin", "tar", "tar"),
        ("a", "jsonl.gz", "jsonl.gz"),
    ],
)
def test_suffix_and_force_give_the_kind(url: str, forced: str | None, kind: str | None) -> None:
    assert kind_of(url, forced) == kind


@pytest.mark.parametrize("url", ["a.tar.bz2", "a.jsonl.xz", "a.tbz", "a.zip"])
def test_other_compressions_are_refused_in_words(url: str) -> None:
    with pytest.raises(SourceError, match=r"is not read; compress it with gzip or zstd"):
        kind_of(url, None)


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"one of jsonl, parquet, arrow, tar, text, lines, csv, tsv, tokens, got 'xml'"
    ):
        kind_of("a.xml", "xml")


@pytest.mark.parametrize("kind", ["text", "lines", "text.gz", "lines.zst"])
def test_plain_text_has_no_fields(kind: str) -> None:
    assert make_format(kind, Shape("text")).name == kind.partition(".")[0]
    with pytest.raises(ConfigError, match="plain text has no fields, so none is called 'body'"):
        make_format(kind, Shape("body"))


@pytest.mark.parametrize("kind", TOLD)
def test_the_first_bytes_give_the_kind_and_its_reader(tmp_path: Path, kind: str) -> None:
    path = write_shard(kind, tmp_path / "shard", ["a", "b"])
    file = ShardFile(str(path), path.stat().st_size)
    assert sniff(file) == kind_of_reader(kind)
    form = make_format(kind_of_reader(kind), Shape(None))
    assert form.name == kind_of_reader(kind).partition(".")[0]
    assert [value for chunk in form.read(file, WHOLE, Cursor()) for value in chunk.values] == ["a", "b"]


def test_an_indented_or_marked_first_line_is_json_lines(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b'\xef\xbb\xbf\n {"text": 1}')
    assert sniff(ShardFile(str(tmp_path / "s"), 16)) == "jsonl"


@pytest.mark.parametrize("data", [b"", b"id,text\n1,x\n", b"\xff\xd8\xff"])
def test_anything_else_is_refused_with_the_formats_there_are(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "s").write_bytes(data)
    with pytest.raises(
        CorruptShardError,
        match=r"byte 0: .*; shards are JSON Lines, tar, text, CSV or TSV \(plain, \.gz, \.zst\), Parquet or Arrow",
    ):
        sniff(ShardFile(str(tmp_path / "s"), len(data)))


@pytest.mark.parametrize("kind", TOLD)
@pytest.mark.parametrize("named", ALL_KINDS)
def test_a_shard_under_another_kind_s_name_is_corrupt_at_once(tmp_path: Path, kind: str, named: str) -> None:
    path = write_shard(kind, tmp_path / "shard", ["a", "b"])
    file = ShardFile(str(path), path.stat().st_size)
    reader = make_format(kind_of_reader(named), Shape(None)).read(file, WHOLE, Cursor())
    if kind_of_reader(kind) in {kind_of_reader(named), named.replace("lines", "jsonl")}:  # JSON is text, too
        assert next(reader)
        return
    with pytest.raises((CorruptShardError, FieldError), match=r"byte 0|footer|header"):
        next(reader)
