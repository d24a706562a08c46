"""However a conversion runs, and wherever it was interrupted, its bytes are the same."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed import Source
from streamfeed.convert.cut import Shard, chains, cut
from streamfeed.convert.engines import LocalEngine
from streamfeed.convert.journal import Journal
from streamfeed.convert.shuffle import Buckets, shuffled_shards
from streamfeed.convert.work import Worker
from streamfeed.errors import ConfigError, WorkerError
from streamfeed.formats.marks import Counted, Mark
from tests.convert.conversions import (
    TARGETS,
    contents,
    conversion,
    convert,
    digest,
    files,
    manifest_of,
    records_for_tests,
)
from tests.corpora import write_record_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS = records_for_tests(150)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_record_corpus("jsonl.gz", folder / "a", RECORDS[:60])
    write_record_corpus("parquet", folder / "b", RECORDS[60:], shards=2)
    return folder


class Stop(Exception):  # noqa: N818
    pass


@pytest.mark.processes
@pytest.mark.parametrize(("to", "shuffle"), [("parquet", None), ("jsonl.zst", 5)])
def test_any_number_of_workers_gives_the_same_bytes(to: str, shuffle: int | None, source: Path, tmp_path: Path) -> None:
    for workers in (1, 2, 5):
        convert(source, tmp_path / str(workers), to, max_records=20, shuffle=shuffle, engine=LocalEngine(workers))
    assert files(tmp_path / "1") == files(tmp_path / "2") == files(tmp_path / "5")
    assert len(files(tmp_path / "1")) == 9


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("shuffle", [None, 5])
def test_a_conversion_that_is_interrupted_anywhere_ends_with_the_same_bytes(
    to: str, shuffle: int | None, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(source, tmp_path / "whole", to, max_records=40, shuffle=shuffle)
    calls = 0
    places = {name: getattr(Journal, name) for name in ("note", "note_count", "finish")}
    places["write"] = None

    def counted(name: str, stop_at: int) -> Any:
        original = Worker.write if name == "write" else places[name]

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == stop_at:
                raise Stop
            return original(*arguments, **options)

        return call

    for stop_at in range(1, 100):
        calls = 0
        with monkeypatch.context() as patch:
            for name in places:
                patch.setattr(Worker if name == "write" else Journal, name, counted(name, stop_at))
            try:
                convert(source, tmp_path / "broken", to, max_records=40, shuffle=shuffle)
            except Stop:
                assert "index.json" not in files(tmp_path / "broken")
            else:
                break
        if stop_at % 3 == 0:  # resume after one stop, and after several
            convert(source, tmp_path / "broken", to, max_records=40, shuffle=shuffle)
            assert files(tmp_path / "broken") == files(tmp_path / "whole"), stop_at
            shutil.rmtree(tmp_path / "broken")
    assert stop_at > 3
    assert files(tmp_path / "broken") == files(tmp_path / "whole")


def test_a_finished_shard_is_kept_if_it_is_what_the_journal_says_and_made_again_otherwise(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    convert(source, whole, "jsonl.zst", max_records=20)

    def stop(*_: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "finish", stop)
        with pytest.raises(Stop):
            convert(source, tmp_path / "out", "jsonl.zst", max_records=20)
    damaged = tmp_path / "out" / "shard-00002.jsonl.zst"
    data = bytearray(damaged.read_bytes())
    data[30] ^= 1
    damaged.write_bytes(data)
    (tmp_path / "out" / "shard-00005.jsonl.zst").unlink()
    (tmp_path / "out" / "_convert" / "tmp" / "left").mkdir(parents=True)
    (tmp_path / "out" / "_convert" / "tmp" / "left" / "half").write_bytes(b"x")
    written: list[int] = []
    original = Worker.write

    def noted(worker: Worker, shard: Shard, rows: Iterator[Any]) -> Any:
        written.append(shard.number)
        return original(worker, shard, rows)

    monkeypatch.setattr(Worker, "write", noted)
    convert(source, tmp_path / "out", "jsonl.zst", max_records=20)
    assert written == [2, 5]
    assert files(tmp_path / "out") == files(whole)


@pytest.mark.parametrize("shuffle", [None, 5])
def test_parts_and_a_finish_give_the_same_bytes(shuffle: int | None, source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "whole", "parquet", max_records=20, shuffle=shuffle)
    for index in (2, 0, 1):
        with pytest.raises(WorkerError, match="run the parts again"):
            conversion(source, tmp_path / "parts", "parquet", max_records=20, shuffle=shuffle).finish()
        conversion(source, tmp_path / "parts", "parquet", max_records=20, shuffle=shuffle).part(index, 3)
    manifest = conversion(source, tmp_path / "parts", "parquet", max_records=20, shuffle=shuffle).finish()
    assert manifest.records == len(RECORDS)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("records", "shards"), [(0, []), (1, [1]), (9, [9]), (10, [10]), (11, [10, 1]), (20, [10, 10])]
)
@pytest.mark.parametrize("shuffle", [None, 1])
def test_shards_are_full_but_for_the_last(records: int, shards: list[int], shuffle: int | None, tmp_path: Path) -> None:
    rows = records_for_tests(records)
    write_record_corpus("parquet" if rows else "csv", tmp_path / "in", rows or [{"text": "x"}], shards=3 if rows else 1)
    if not rows:
        (tmp_path / "in" / "part-00000.csv").write_text("text\n")
    for to in TARGETS:
        manifest = convert(tmp_path / "in", tmp_path / to, to, max_records=10, shuffle=shuffle)
        assert [shard.counted.records for shard in manifest.shards] == shards
        assert manifest == manifest_of(tmp_path / to)
        assert sorted(files(tmp_path / to)) == sorted(["index.json", *(shard.name for shard in manifest.shards)])
        assert {record["id"] for record in contents(tmp_path / to)} == set(range(records))


def test_a_shuffle_is_an_order_of_its_seed_and_moves_records_over_shards(source: Path, tmp_path: Path) -> None:
    orders = {}
    for seed in (1, 2):
        convert(source, tmp_path / str(seed), "jsonl.zst", max_records=50, shuffle=seed)
        orders[seed] = [record["id"] for record in contents(tmp_path / str(seed))]
        assert sorted(orders[seed]) == list(range(150))
        assert 5 < sum(number < 50 for number in orders[seed][:50]) < 30
    assert orders[1] != orders[2]
    found = sorted(contents(tmp_path / "1"), key=lambda record: int(record["id"]))
    assert digest(found) == digest(RECORDS)


def test_a_shuffle_holds_one_bucket_and_one_segment_at_a_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(source, tmp_path / "few", "parquet", max_records=50, shuffle=1)
    monkeypatch.setattr("streamfeed.convert.shuffle.SEGMENT_BYTES", 500)
    convert(source, tmp_path / "small", "parquet", max_records=50, shuffle=1)
    assert files(tmp_path / "few") == files(tmp_path / "small")
    monkeypatch.setattr("streamfeed.convert.run.BUCKET_BYTES", 700)
    convert(source, tmp_path / "many", "parquet", max_records=50, shuffle=1)
    assert sorted(int(one["id"]) for one in contents(tmp_path / "many")) == list(range(150))


@pytest.mark.parametrize("to", TARGETS)
def test_what_is_written_does_not_depend_on_how_records_were_read(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record_corpus("jsonl", tmp_path / "in", RECORDS)
    monkeypatch.setattr("streamfeed.convert.work.GROUP_BYTES", 3000)
    monkeypatch.setattr("streamfeed.convert.writers.FRAME", 1000)
    convert(tmp_path / "in", tmp_path / "a", to, max_records=60)
    monkeypatch.setattr("streamfeed.formats.plain.BLOCK", 300)
    monkeypatch.setattr("streamfeed.convert.tables._TOGETHER", 1)
    convert(tmp_path / "in", tmp_path / "b", to, max_records=60)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_complete_conversion_is_left_alone_and_a_foreign_folder_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert(source, out, "parquet", max_records=100)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    convert(source, out, "parquet", max_records=100)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    with pytest.raises(ConfigError, match=r"is not empty: it holds index.json; choose another folder, or pass --overw"):
        convert(source, out, "parquet", max_records=90)
    convert(source, out, "jsonl.zst", max_records=90, overwrite=True)
    assert sorted(files(out)) == ["index.json", "shard-00000.jsonl.zst", "shard-00001.jsonl.zst"]
    (out / "thesis.doc").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds thesis\.doc; which no conversion made"):
        convert(source, out, "parquet", overwrite=True)
    assert (out / "thesis.doc").read_text() == "mine"


def test_an_unfinished_conversion_is_finished_as_it_was_begun_or_not_at_all(source: Path, tmp_path: Path) -> None:
    conversion(source, tmp_path / "out", "parquet", max_records=100).part(0, 2)
    with pytest.raises(ConfigError, match=r"unfinished .* settings.max_records was 100 and is 90; finish it as it was"):
        convert(source, tmp_path / "out", "parquet", max_records=90)
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    with pytest.raises(ConfigError, match=r"unfinished .* source.uris was"):
        convert(copy, tmp_path / "out", "parquet", max_records=100)
    convert(source, tmp_path / "out", "parquet", max_records=100)


def test_shards_are_not_written_where_the_source_lies(source: Path) -> None:
    with pytest.raises(ConfigError, match="of the source; convert to another folder"):
        convert(Source(str(source / "**" / "*.parquet")), source, "parquet")


counts = st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900)), max_size=4), min_size=1, max_size=5)


def counted(groups: list[tuple[int, int]]) -> Counted:
    marks, records, nbytes = [Mark(0, 0, 0, 0)], 0, 0
    for i, (some, size) in enumerate(groups):
        if i:
            marks.append(Mark(records, nbytes, i, 0))
        records, nbytes = records + some, nbytes + size
    return Counted(records, nbytes, tuple(marks))


@given(counts, st.none() | st.integers(1, 20), st.none() | st.integers(1, 3000))
def test_a_cut_has_every_record_once_in_order_within_the_limits(
    groups: list[list[tuple[int, int]]], max_records: int | None, max_bytes: int | None
) -> None:
    pieces = [counted(one) for one in groups]
    shards = cut(pieces, max_records, max_bytes)
    total = sum(one.records for one in pieces)
    assert sum(shard.records for shard in shards) == total
    assert [shard.first for shard in shards] == [sum(one.records for one in shards[:i]) for i in range(len(shards))]
    taken = [0] * len(pieces)
    for shard in shards:
        assert shard.records == sum(stretch.records for stretch in shard.stretches) > 0
        assert max_records is None or shard.records <= max_records
        assert max_bytes is None or shard.nbytes <= max_bytes or shard.records == 1
        for stretch in shard.stretches:
            mark = pieces[stretch.piece].before(taken[stretch.piece])
            assert (stretch.cursor.seek, stretch.cursor.skip) == (mark.seek, taken[stretch.piece] - mark.record)
            taken[stretch.piece] += stretch.records
    assert taken == [one.records for one in pieces]
    if max_bytes is None and max_records is not None:
        assert all(shard.records == max_records for shard in shards[:-1])
    assert [shard for chain in chains(shards, pieces) for shard in chain] == shards


def test_shards_far_behind_the_last_way_in_are_made_in_one_reading() -> None:
    gzip = Counted(1000, 1000 << 20)
    shards = cut([gzip, gzip], 100, None)
    assert [len(chain) for chain in chains(shards, [gzip, gzip])] == [10, 10]
    marked = Counted(1000, 1000 << 20, tuple(Mark(i, i << 20, i, 0) for i in range(0, 1000, 10)))
    assert [len(chain) for chain in chains(cut([marked], 100, None), [marked])] == [1] * 10


@given(st.integers(0, 300_000), st.integers(1, 40), st.integers(0, 5))
def test_buckets_hold_every_record_wherever_one_begins_to_count(records: int, count: int, seed: int) -> None:
    buckets = Buckets(seed, records, count)
    assert buckets.sizes().sum() == records
    whole = buckets.bits(0, records)
    first = records // 3
    assert (buckets.bits(first, records - first) == whole[first:]).all()


def test_shuffled_shards_are_as_full_as_the_limits_allow() -> None:
    shards = shuffled_shards([Counted(70, 7000), Counted(35, 3500)], None, 1000)
    assert [shard.records for shard in shards] == [10] * 10 + [5]
    assert shuffled_shards([Counted(0, 0)], 5, None) == []
