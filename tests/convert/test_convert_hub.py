"""Conversions of datasets on the Hub: the shards that the same files on a disk give, to the byte."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source
from streamfeed.cli.main import main
from streamfeed.convert.engines import LocalEngine
from streamfeed.convert.journal import Journal
from streamfeed.convert.verify import verify_folder
from streamfeed.errors import SourceError
from streamfeed.formats.manifest import MANIFEST
from tests.convert.conversions import contents, convert, files, records_for_tests, said
from tests.corpora import write_record_corpus
from tests.servers.hub import SIGNATURE, TOKEN, Fault, Hub

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = records_for_tests(100)
REPO = "org/corpus"
URI = f"hf://datasets/{REPO}"
HUB_KINDS = ("parquet", "jsonl", "jsonl.gz", "tar")


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "jsonl.gz"))


@pytest.fixture
def here(kind: str, hub: Hub, tmp_path: Path) -> Path:
    """A folder whose files are also those of a private dataset on the Hub: some small, some in large file storage."""
    paths = write_record_corpus(kind, tmp_path / "in" / "data", RECORDS, shards=3)
    repo = hub.repo(REPO, {"README.md": "# A corpus\n"}, private=True, large=sorted(map(_size, paths))[1])
    repo.commit({f"data/{path.name}": path.read_bytes() for path in paths})
    return tmp_path / "in"


def _size(path: Path) -> int:
    return path.stat().st_size


def source(uri: str = URI) -> Source:
    return Source(uri, storage_options={"token": TOKEN})


def shards(folder: Path) -> dict[str, str]:
    """The hash of every shard; what the manifest says of them is compared by itself."""
    return {name: found for name, found in files(folder).items() if name != MANIFEST}


@pytest.mark.parametrize("to", ["parquet", "jsonl.zst"])
@pytest.mark.parametrize("kind", HUB_KINDS, indirect=True)
def test_a_dataset_on_the_hub_becomes_the_shards_that_its_files_on_a_disk_become(
    to: str, here: Path, hub: Hub, tmp_path: Path
) -> None:
    disk = convert(here, tmp_path / "disk", to, max_records=30)
    made = convert(source(), tmp_path / "hub", to, max_records=30)
    assert [shard.counted.records for shard in made.shards] == [30, 30, 30, 10]
    assert made.shards == disk.shards, "sizes, checksums and ways in"
    assert shards(tmp_path / "hub") == shards(tmp_path / "disk")
    assert contents(tmp_path / "hub") == [said(record) for record in RECORDS]
    assert verify_folder(str(tmp_path / "hub"), LocalEngine()).problems == ()
    assert hub.count("large", "GET") > 0
    assert hub.count("resolve", "GET") > 0
    written = b"".join(path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file())
    assert TOKEN.encode() not in written
    assert SIGNATURE.encode() not in written


@pytest.mark.parametrize("options", [{"shuffle": 3}, {"shuffle": None}], ids=str)
def test_a_conversion_from_the_hub_that_is_interrupted_and_meets_faults_ends_with_the_same_bytes(
    options: dict[str, Any], here: Path, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(here, tmp_path / "disk", "parquet", max_records=30, **options)
    note, calls = Journal.note, iter(range(1000))

    def stopping(*arguments: Any) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        note(*arguments)

    monkeypatch.setattr(Journal, "note", stopping)
    hub.faults = [Fault(kind, 503, headers={"Retry-After": "0"}) for kind in ("info", "tree", "resolve", "large")]
    with pytest.raises(KeyboardInterrupt):
        convert(source(), tmp_path / "hub", "parquet", max_records=30, **options)
    assert not any(fault.times for fault in hub.faults)
    convert(source(), tmp_path / "hub", "parquet", max_records=30, **options)
    assert shards(tmp_path / "hub") == shards(tmp_path / "disk")


def test_a_commit_in_the_middle_of_a_conversion_is_not_mixed_into_it(
    here: Path, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision is pinned when it begins, and it ends with what it began with."""
    convert(here, tmp_path / "disk", "jsonl.zst", max_records=30)
    note, calls = Journal.note, iter(range(1000))

    def committing(*arguments: Any) -> None:
        if next(calls) == 0:
            others = write_record_corpus("jsonl.gz", tmp_path / "other", RECORDS[::-1], shards=3)
            hub.repos[REPO].commit({f"data/{path.name}": path.read_bytes() for path in others})
        note(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "note", committing)
        convert(source(), tmp_path / "hub", "jsonl.zst", max_records=30)
    assert shards(tmp_path / "hub") == shards(tmp_path / "disk")


@pytest.mark.processes
def test_the_command_converts_from_the_hub_in_worker_processes(
    here: Path, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert(here, tmp_path / "disk", "jsonl.zst", max_records=30)
    words = [f"{URI}@main/data/*.jsonl.gz", str(tmp_path / "hub"), "--to", "jsonl.zst", "--max-records", "30"]
    assert main(["convert", *words, "--workers", "2", "--source-options", json.dumps({"token": TOKEN})]) == 0
    assert shards(tmp_path / "hub") == shards(tmp_path / "disk")
    assert TOKEN not in "".join(capsys.readouterr())
    assert hub.count("large", "GET") > 0


@pytest.mark.parametrize("to", ["parquet", "jsonl.zst"])
def test_what_only_datasets_can_read_is_converted_with_the_same_content(to: str, hub: Hub, tmp_path: Path) -> None:
    rows = [{"id": record["id"], "text": record["text"], "score": record["score"]} for record in RECORDS]
    readme = "---\nconfigs:\n- config_name: default\n  data_files: data/*.json\n  field: rows\n---\n"
    parts = {f"data/{index}.json": json.dumps({"rows": rows[50 * index : 50 * index + 50]}) for index in range(2)}
    hub.repo(REPO, {"README.md": readme, **parts}, large=100)
    manifest = convert(URI, tmp_path / "hub", to, max_records=30)
    assert [shard.counted.records for shard in manifest.shards] == [30, 30, 30, 10]
    assert contents(tmp_path / "hub") == rows


def test_a_dataset_that_may_not_be_read_is_an_error_that_names_it_and_no_token(
    here: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert here
    caplog.set_level(logging.DEBUG, "streamfeed")
    with pytest.raises(SourceError, match=f"{URI}.*") as caught:
        convert(Source(URI, storage_options={"token": TOKEN[::-1]}), tmp_path / "hub", "parquet")
    assert TOKEN[::-1] not in f"{caught.value}{caplog.text}"
