"""Records come out of every format as they went in, with all of their fields."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset

from streamfeed import Source
from streamfeed.errors import RecordError
from tests.convert.conversions import TARGETS, contents, convert, digest, files, records_for_tests
from tests.corpora import write_record_corpus, write_shard

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = records_for_tests(120)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_record_corpus("jsonl", folder, RECORDS, shards=3)
    return folder


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
def test_a_record_that_went_through_two_formats_is_the_same(
    first: str, second: str, source: Path, tmp_path: Path
) -> None:
    convert(source, tmp_path / "a", first, max_records=50)
    assert digest(contents(tmp_path / "a")) == digest(RECORDS)
    convert(tmp_path / "a", tmp_path / "b", second, max_records=37)
    assert digest(contents(tmp_path / "b")) == digest(RECORDS)
    convert(tmp_path / "b", tmp_path / "c", "jsonl.zst")
    assert digest(contents(tmp_path / "c")) == digest(RECORDS)


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst", "parquet", "arrow", "arrows"])
def test_every_format_of_records_is_read_whole(kind: str, tmp_path: Path) -> None:
    write_record_corpus(kind, tmp_path / "in", RECORDS, shards=2)
    for to in TARGETS:
        convert(tmp_path / "in", tmp_path / to, to, max_records=77)
        assert digest(contents(tmp_path / to)) == digest(RECORDS), to


@pytest.mark.parametrize("kind", ["csv", "tsv.gz"])
def test_all_fields_of_csv_are_kept_as_text(kind: str, tmp_path: Path) -> None:
    rows = [{"id": str(i), "text": f'a "{i}"\nb', "007": "007"} for i in range(20)]
    write_record_corpus(kind, tmp_path / "in", rows)
    for to in TARGETS:
        convert(tmp_path / "in", tmp_path / to, to)
        assert contents(tmp_path / to) == rows


@pytest.mark.parametrize(("kind", "form"), [("lines", "lines"), ("lines.gz", "lines"), ("text", None)])
def test_plain_text_becomes_the_text_field(kind: str, form: str | None, tmp_path: Path) -> None:
    if kind == "text":
        for i in range(5):
            (tmp_path / "in").mkdir(exist_ok=True)
            (tmp_path / "in" / f"{i}.txt").write_text(f"document {i}")
        expected = [{"body": f"document {i}"} for i in range(5)]
    else:
        write_shard(kind, tmp_path / "in" / f"a.{kind}", ["one", "two"])
        expected = [{"body": "one"}, {"body": "two"}]
    convert(Source(str(tmp_path / "in"), format=form), tmp_path / "out", "parquet", text="body")
    assert contents(tmp_path / "out", "body") == expected


def test_a_tar_keeps_members_that_are_bytes_and_webdataset_reads_it(tmp_path: Path) -> None:
    rows = [{"text": f"a cat {i}", "jpg": bytes([255, 216, i]), "width": i} for i in range(9)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "a.parquet")
    convert(tmp_path / "in", tmp_path / "tar", "tar", max_records=5)
    found = list(webdataset.WebDataset(sorted(map(str, (tmp_path / "tar").glob("*.tar"))), shardshuffle=False))
    assert [one["jpg"] for one in found] == [row["jpg"] for row in rows]
    assert [one["txt"].decode() for one in found] == [row["text"] for row in rows]
    assert [one["json"] for one in found] == [b'{"width":%d}' % i for i in range(9)]
    convert(tmp_path / "tar", tmp_path / "back", "parquet")
    assert contents(tmp_path / "back") == rows
    with pytest.raises(RecordError, match="JSON cannot say it: bytes that are no text"):
        convert(tmp_path / "tar", tmp_path / "json", "jsonl.zst")


def test_a_tar_has_no_times_and_no_owners(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "tar", "tar")
    with tarfile.open(tmp_path / "tar" / "shard-00000.tar") as archive:
        members = archive.getmembers()
    assert len(members) == 2 * len(RECORDS)
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname, one.mode) for one in members} == {
        (0, 0, 0, "", "", 0o644)
    }


def test_a_tar_of_samples_keeps_its_keys_and_members(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    data = {"a/x.txt": b"one", "a/x.json": b"[1]", "a/y.cls": b"3", "a/y.seg.png": b"\x89"}
    with tarfile.open(tmp_path / "in" / "a.tar", "w") as archive:
        for name, content in data.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    convert(tmp_path / "in", tmp_path / "out", "tar")
    with tarfile.open(tmp_path / "out" / "shard-00000.tar") as archive:
        assert {one.name: archive.extractfile(one).read() for one in archive} == data  # type: ignore[union-attr]


def test_columns_keep_the_types_of_their_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    schema = pa.schema(
        [("a", pa.int8()), ("b", pa.timestamp("us", "UTC")), ("c", pa.dictionary(pa.int32(), pa.string()))],
        metadata={"who": "me"},
    )
    table = pa.Table.from_pylist([{"a": 1, "b": 5, "c": "x"}, {"a": None, "b": None, "c": "y"}], schema=schema)
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    convert(tmp_path / "in", tmp_path / "out", "parquet")
    found = pq.read_table(tmp_path / "out" / "shard-00000.parquet")
    assert found.schema.field("a").type == pa.int8()
    assert found.schema.field("b").type == pa.timestamp("us", "UTC")
    assert found.schema.field("c").type == pa.string()
    assert found.schema.metadata[b"who"] == b"me"
    assert found.to_pylist() == table.to_pylist()


def test_a_field_of_two_types_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1}] * 7 + [{"a": "one"}] + [{"a": 2}] * 3
    write_record_corpus("jsonl", tmp_path / "in", rows)
    with pytest.raises(RecordError, match=r"part-00000.jsonl, record 7: field 'a' is .* convert to jsonl.zst or tar"):
        convert(tmp_path / "in", tmp_path / "parquet", "parquet")
    convert(tmp_path / "in", tmp_path / "jsonl", "jsonl.zst")
    assert contents(tmp_path / "jsonl") == rows


@pytest.mark.parametrize(
    ("line", "cause"), [("[1]", "is a list, no object"), ('{"a":', "not valid JSON"), ("7", "is a number")]
)
def test_a_line_that_is_no_record_is_an_error_and_is_never_left_out(line: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":1}\n' * 5 + line + "\n")
    with pytest.raises(RecordError, match=f"record 5.*{cause}"):
        convert(tmp_path / "a.jsonl", tmp_path / "out", "jsonl.zst")


def test_whole_numbers_widen_to_floats_only_without_loss(tmp_path: Path) -> None:
    write_record_corpus("jsonl", tmp_path / "in", [{"a": 1}, {"a": 0.5}, {"a": None}])
    convert(tmp_path / "in", tmp_path / "out", "parquet")
    assert contents(tmp_path / "out") == [{"a": 1.0}, {"a": 0.5}, {}]
    write_record_corpus("jsonl", tmp_path / "large", [{"a": 2**53 + 1}, {"a": 0.5}])
    with pytest.raises(RecordError, match="field 'a' holds floats, and a whole number none can hold"):
        convert(tmp_path / "large", tmp_path / "lost", "parquet")


def test_numbers_and_spaces_of_json_lines_stay_as_they_are_written(tmp_path: Path) -> None:
    text = '{"a": 1.50, "b": 123456789012345678901234567890}\n{"a":1e5}\n'
    (tmp_path / "a.jsonl").write_text(text)
    convert(tmp_path / "a.jsonl", tmp_path / "zst", "jsonl.zst")
    import zstandard

    found = (tmp_path / "zst" / "shard-00000.jsonl.zst").read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(found).decode() == text


def test_records_of_several_formats_meet_in_one_shard(tmp_path: Path) -> None:
    write_record_corpus("jsonl", tmp_path / "in" / "a", RECORDS[:40])
    write_record_corpus("parquet", tmp_path / "in" / "b", RECORDS[40:])
    for to in TARGETS:
        for shuffle in (None, 3):
            folder = tmp_path / f"{to}-{shuffle}"
            convert(tmp_path / "in", folder, to, shuffle=shuffle)
            found = sorted(contents(folder), key=lambda record: int(record["id"]))
            assert digest(found) == digest(RECORDS)
            assert len(files(folder)) == 2
