"""Conversions from and to a store of objects, and on a Ray cluster: the same bytes as on a disk."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source
from streamfeed.convert.engines import LocalEngine, RayEngine
from streamfeed.convert.index import index_folder
from streamfeed.convert.journal import Journal
from streamfeed.convert.verify import verify_folder
from streamfeed.errors import ConfigError, RecordError, WorkerError
from tests.convert.conversions import convert, files, records_for_tests
from tests.corpora import write_record_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.seaweed import Bucket

RECORDS = records_for_tests(100)


def test_a_conversion_in_a_bucket_is_that_on_a_disk_also_when_it_was_interrupted(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record_corpus("jsonl.gz", tmp_path / "in", RECORDS, shards=2)
    for path in (tmp_path / "in").iterdir():
        bucket.put(f"in/{path.name}", path.read_bytes())
    source = Source(f"{bucket.url}/in", storage_options=bucket.options)
    options: dict[str, Any] = {"max_records": 30, "dest_options": bucket.options}
    disk = convert(tmp_path / "in", tmp_path / "disk", "jsonl.zst", max_records=30)
    calls = 0
    note = Journal.note

    def stopping(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        note(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "note", stopping)
        with pytest.raises(KeyboardInterrupt):
            convert(source, f"{bucket.url}/out", "jsonl.zst", **options)
    manifest = convert(source, f"{bucket.url}/out", "jsonl.zst", **options)
    assert manifest.shards == disk.shards
    found = [path.rpartition("/")[2] for path in bucket.fs.find(f"{bucket.name}/out")]
    assert sorted(found) == sorted(["index.json", *(shard.name for shard in manifest.shards)])
    with pytest.raises(ConfigError, match="is not empty"):
        convert(source, f"{bucket.url}/out", "parquet", **options)
    assert verify_folder(f"{bucket.url}/out", LocalEngine(), options=bucket.options).problems == ()
    bucket.put("out/shard-00001.jsonl.zst", b"x")
    problems = verify_folder(f"{bucket.url}/out", LocalEngine(), options=bucket.options).problems
    assert {problem.name for problem in problems} == {"shard-00001.jsonl.zst"}


def test_shards_in_a_bucket_are_indexed_with_their_versions(bucket: Bucket, tmp_path: Path) -> None:
    for path in write_record_corpus("parquet", tmp_path / "in", RECORDS, shards=2):
        bucket.put(f"in/{path.name}", path.read_bytes())
    manifest = index_folder(f"{bucket.url}/in", LocalEngine(), options=bucket.options)
    assert [shard.counted.records for shard in manifest.shards] == [50, 50]
    assert all(shard.version for shard in manifest.shards)
    assert verify_folder(f"{bucket.url}/in", LocalEngine(), options=bucket.options).problems == ()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    handler = signal.getsignal(signal.SIGTERM)
    found.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield found
    found.shutdown()
    signal.signal(signal.SIGTERM, handler)  # Ray leaves its own behind, which other tests of this process would meet


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_ray_cluster_gives_the_same_bytes_and_the_same_errors(ray: Any, tmp_path: Path) -> None:
    write_record_corpus("jsonl", tmp_path / "in", RECORDS, shards=3)
    for shuffle in (None, 4):
        convert(tmp_path / "in", tmp_path / f"here-{shuffle}", "parquet", max_records=15, shuffle=shuffle)
        convert(
            tmp_path / "in", tmp_path / f"ray-{shuffle}", "parquet", max_records=15, shuffle=shuffle, engine=RayEngine()
        )
        assert files(tmp_path / f"here-{shuffle}") == files(tmp_path / f"ray-{shuffle}")
    (tmp_path / "in" / "z.jsonl").write_text("[1]\n")
    with pytest.raises(RecordError, match=r"z\.jsonl, record 0: the record is a list, no object"):
        convert(tmp_path / "in", tmp_path / "bad", "parquet", max_records=15, engine=RayEngine(2))


def test_without_ray_installed_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("streamfeed.convert.engines.importlib.import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'streamfeed\[ray\]'"):
        RayEngine()


@pytest.mark.processes
def test_a_process_that_is_killed_is_an_error_and_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_record_corpus("jsonl", tmp_path / "in", RECORDS, shards=2)
    engine = LocalEngine(2)
    killed = False

    def kill(stage: str, done: Any, tasks: int) -> None:
        nonlocal killed
        if not killed:
            import psutil

            victims = [one for one in psutil.Process().children(recursive=True) if _converts(one)]
            assert victims
            victims[0].kill()
            killed = True

    with pytest.raises(WorkerError, match="was killed; run it again"):
        convert(tmp_path / "in", tmp_path / "out", "jsonl.zst", max_records=1, engine=engine, progress=kill)
    convert(tmp_path / "in", tmp_path / "out", "jsonl.zst", max_records=1)
    assert len(files(tmp_path / "out")) == 101


def _converts(process: Any) -> bool:
    """A worker of the pool: a child of the fork server."""
    return "forkserver" in " ".join(process.cmdline()) and not process.children()
