"""A shard's kind by suffix, by force, by its first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfeed.errors import ConfigError, CorruptShardError, SourceError
from streamfeed.formats.detect import KINDS, kind_of, make_format, sniff
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.storage.files import ShardFile
from tests.corpora import write_shard

if TYPE_CHECKING:
    from pathlib import Path


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
        ("s3://b/a.jsonl.gz?versionId=a.tar", None, "jsonl.gz"),
        ("a.gz", None, None),
        ("a.txt", None, None),
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


@pytest.mark.parametrize("url", ["a.tar.gz", "a.tgz", "a.tar.zst"])
def test_compressed_tars_are_refused_in_words(url: str) -> None:
    with pytest.raises(SourceError, match="compressed tars are not read yet"):
        kind_of(url, None)


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"format must be one of jsonl, parquet, tar, got 'csv'"):
        kind_of("a.csv", "csv")


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_bytes_give_the_kind_and_its_reader(tmp_path: Path, kind: str) -> None:
    path = write_shard(kind, tmp_path / "shard", ["a", "b"])
    file = ShardFile(str(path), path.stat().st_size)
    assert sniff(file) == kind
    form = make_format(kind, None)
    assert form.name == kind.partition(".")[0]
    assert [value for chunk in form.read(file, WHOLE, Cursor()) for value in chunk.values] == ["a", "b"]


def test_an_indented_or_marked_first_line_is_json_lines(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b'\xef\xbb\xbf\n {"text": 1}')
    assert sniff(ShardFile(str(tmp_path / "s"), 16)) == "jsonl"


@pytest.mark.parametrize("data", [b"", b"id,text\n1,x\n", b"ARROW1\0\0"])
def test_anything_else_is_refused_with_the_formats_there_are(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "s").write_bytes(data)
    with pytest.raises(
        CorruptShardError, match=r"byte 0: .*; shards are JSON Lines \(plain, \.gz, \.zst\), Parquet or tar"
    ):
        sniff(ShardFile(str(tmp_path / "s"), len(data)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", KINDS)
def test_a_shard_under_another_kind_s_name_is_corrupt_at_once(tmp_path: Path, kind: str, named: str) -> None:
    path = write_shard(kind, tmp_path / "shard", ["a", "b"])
    file = ShardFile(str(path), path.stat().st_size)
    reader = make_format(named, None).read(file, WHOLE, Cursor())
    if kind == named:
        assert next(reader)
        return
    with pytest.raises(CorruptShardError, match=r"byte 0|footer"):
        next(reader)
