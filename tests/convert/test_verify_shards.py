"""Shards against their manifest: good ones pass, and what is wrong with others is named by shard and record."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from streamfeed.cli.main import main
from streamfeed.convert.engines import LocalEngine
from streamfeed.convert.index import index_folder
from streamfeed.convert.verify import Problem, verify_folder
from streamfeed.errors import ConfigError, CorruptShardError
from streamfeed.formats.manifest import _checksum
from tests.convert.conversions import TARGETS, convert, files, manifest_of, records_for_tests
from tests.corpora import write_record_corpus

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{**record, "body": f"{i:08} " * 400} for i, record in enumerate(records_for_tests(90))]
KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar", "tar.gz", "arrow", "arrows", "csv")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_record_corpus("jsonl", folder, RECORDS)
    return folder


def problems(folder: Path) -> tuple[Problem, ...]:
    return verify_folder(str(folder), LocalEngine()).problems


@pytest.mark.parametrize("to", TARGETS)
def test_shards_of_a_conversion_are_what_their_manifest_says(to: str, source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", to, max_records=40)
    assert problems(tmp_path / "out") == ()


@pytest.mark.parametrize("kind", KINDS)
def test_shards_of_anybody_are_what_the_index_of_them_says(kind: str, tmp_path: Path) -> None:
    write_record_corpus(kind, tmp_path, RECORDS, shards=2)
    manifest = index_folder(str(tmp_path), LocalEngine())
    assert [shard.counted.records for shard in manifest.shards] == [45, 45]
    assert manifest == manifest_of(tmp_path)
    assert problems(tmp_path) == ()


@pytest.mark.parametrize("to", TARGETS)
def test_the_index_of_a_conversion_counts_what_the_conversion_counted(to: str, source: Path, tmp_path: Path) -> None:
    made = convert(source, tmp_path / "out", to, max_records=40)
    found = index_folder(str(tmp_path / "out"), LocalEngine(), overwrite=True)
    assert [(one.name, one.size, one.sums, one.counted.records) for one in found.shards] == [
        (one.name, one.size, one.sums, one.counted.records) for one in made.shards
    ]


@pytest.mark.parametrize("to", TARGETS)
def test_a_flipped_byte_is_found_wherever_it_is_and_its_records_are_named(
    to: str, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    convert(source, out, to, max_records=40)
    shard = sorted(out.glob("shard-*"))[1]
    whole = shard.read_bytes()
    for place in range(7, len(whole), max(1, len(whole) // 6)):
        data = bytearray(whole)
        data[place] ^= 0x10
        shard.write_bytes(data)
        found = problems(out)
        assert {problem.name for problem in found} == {shard.name}, place
        assert "are not those of the manifest" in str(found[0])
        assert "record" in found[0].where, (place, found)


def test_a_flipped_byte_in_a_tar_names_the_samples_of_its_block(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", "tar")
    shard = tmp_path / "out" / "shard-00000.tar"
    data = bytearray(shard.read_bytes())
    place = data.index(b"00000050 00000050")
    data[place] ^= 1
    shard.write_bytes(data)
    (problem,) = problems(tmp_path / "out")
    first, last = map(int, problem.where.removeprefix("records ").split(" to "))
    assert first <= 50 <= last
    assert last - first < 25


def test_a_missing_a_truncated_and_a_foreign_shard_are_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(source, out, "tar", max_records=30)
    (out / "shard-00001.tar").unlink()
    (out / "extra.tar").write_bytes(b"")
    cut = out / "shard-00002.tar"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    found = {problem.name: str(problem) for problem in reversed(problems(out))}
    assert found["shard-00001.tar"] == "shard-00001.tar: is missing: records 30 to 59 of the folder"
    assert "the manifest says" in found["shard-00002.tar"]
    assert "it is truncated" in found["shard-00002.tar"]
    assert "records 1" in found["shard-00002.tar"]
    assert found["extra.tar"] == "extra.tar: is there, and not in the manifest"


def test_a_changed_manifest_is_no_manifest(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", "jsonl.zst")
    path = tmp_path / "out" / "index.json"
    path.write_bytes(path.read_bytes().replace(b'"records": 90', b'"records": 91', 1))
    with pytest.raises(CorruptShardError, match=r"index\.json: the manifest was changed"):
        problems(tmp_path / "out")
    path.unlink()
    with pytest.raises(ConfigError, match=r"has no index\.json; make it with streamfeed index"):
        problems(tmp_path / "out")


def test_a_way_in_that_leads_elsewhere_is_found(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamfeed.convert.writers.FRAME", 4000)
    monkeypatch.setattr("streamfeed.convert.writers._SPACING", 1)
    convert(source, tmp_path / "out", "jsonl.zst")
    assert problems(tmp_path / "out") == ()
    said = json.loads((tmp_path / "out" / "index.json").read_bytes())
    marks = said["shards"][0]["marks"]
    assert len(marks) > 20
    tried = len(marks) // 8
    marks[tried][2] = marks[tried + 1][2]
    said.pop("checksum")
    (tmp_path / "out" / "index.json").write_bytes(json.dumps({**said, "checksum": _checksum(said)}).encode())
    (problem,) = problems(tmp_path / "out")
    assert problem.where == f"record {marks[tried][0]}"
    assert problem.cause == "is not where the manifest says; make it again"


@pytest.mark.parametrize(
    ("name", "said"), [("../../x.txt", "leads out"), ("/etc/x.txt", "leads out"), ("A.txt", "upper")]
)
def test_keys_that_harm_when_unpacked_are_named(name: str, said: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for one in ("a.txt", name):
            member = tarfile.TarInfo(one)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    index_folder(str(tmp_path), LocalEngine())
    (problem,) = problems(tmp_path)
    assert (problem.name, problem.where) == ("a.tar", "record 1")
    assert said in problem.cause


def test_an_index_of_somebody_else_is_not_replaced(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out", "tar")
    with pytest.raises(ConfigError, match="that of the conversion"):
        index_folder(str(tmp_path / "out"), LocalEngine())
    (tmp_path / "out" / "index.json").write_text('{"version": 2, "shards": []}')
    before = files(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"no manifest of shards.*--overwrite"):
        index_folder(str(tmp_path / "out"), LocalEngine())
    assert files(tmp_path / "out") == before


def test_the_commands_say_what_they_found_and_end_with_it(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["convert", str(source), str(out), "--to", "jsonl.zst", "--max-records", "50"]) == 0
    assert "2 shard(s) of jsonl.zst, 90 records" in capsys.readouterr().err
    assert main(["verify", str(out), "--quiet"]) == 0
    assert main(["index", str(out), "--overwrite", "--quiet"]) == 0
    data = bytearray((out / "shard-00001.jsonl.zst").read_bytes())
    data[100] ^= 1
    (out / "shard-00001.jsonl.zst").write_bytes(data)
    capsys.readouterr()
    assert main(["verify", str(out), "--quiet"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("shard-00001.jsonl.zst, record")
    assert said.endswith("error: 1 of 2 shards are not what the manifest says\n")
    assert main(["verify", str(source), "--quiet"]) == 2
