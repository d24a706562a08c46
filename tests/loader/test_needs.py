"""What a loader needs: estimated before it starts, refused where it cannot fit, and held against real workers."""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
import textwrap
from random import Random
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.dataset.message import Layout
from streamfeed.dataset.share import Share
from streamfeed.errors import ConfigError
from streamfeed.formats.shape import Field, Shape
from streamfeed.loader.advice import check_shared_memory, off_by_much, refuse_what_cannot_fit, suggest_workers
from streamfeed.loader.glance import USUAL_DOCUMENT, USUAL_FRAME_WINDOW, Glance, glance
from streamfeed.loader.job import Job
from streamfeed.loader.needs import MB, Needs, needs_of, worker_descriptors
from streamfeed.loader.ring import Ring, ring_bytes
from streamfeed.machine import Descriptors, Machine
from streamfeed.plan.plan import Plan, SourcePlan
from streamfeed.plan.shards import ShardTable, UnitTable
from tests.corpora import json_lines, texts_with_ids, write_shard
from tests.lanes import rules
from tests.streams import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GB = 1 << 30
DEFAULTS: dict[str, Any] = {"lanes": 48, "seq_len": 2048, "shuffle_buffer": 16384, "window_bytes": 64 * MB}


def source_of(
    kind: str = "jsonl", nbytes: int = 500 * GB, url: str = "/data/{}.x", shape: Shape | None = None
) -> SourcePlan:
    """A source of 2,000 shards, each a unit."""
    count = 2000
    shards = ShardTable.build([url.format(i) for i in range(count)], [nbytes // count] * count, [kind] * count)
    units = UnitTable.build([(i, 0, -1, 0, 1, nbytes // count) for i in range(count)])
    return SourcePlan(shards, units, shape or Shape("text"), 1.0)


def plan(*sources: SourcePlan, **changes: Any) -> Plan:
    return Plan(sources or [source_of()], rules(**{**DEFAULTS, **changes}), {})


def needs(of: Plan, workers: int = 2, ranks: int = 1, **seen: Any) -> Needs:
    return needs_of(of, Share(of.lanes, 0, ranks), [Glance(**seen)] * len(of.sources), workers)


SMALL = needs(plan(source_of(nbytes=MB)), 1)


# Estimates


def test_a_small_corpus_needs_little_more_than_its_processes_whatever_the_settings_allow() -> None:
    amount = needs(plan(source_of(nbytes=10 * MB), window_bytes=GB, shuffle_buffer=1 << 30), 2).memory
    processes = needs(plan(source_of(nbytes=2000)), 2).memory
    assert processes.likely < amount.likely <= amount.most < processes.likely + 25 * 10 * MB


def test_the_defaults_fit_into_two_gigabytes_from_any_store_and_format() -> None:
    for kind in ("jsonl", "parquet", "tar", "jsonl.gz"):
        for url in ("/data/{}", "s3://bucket/{}"):
            amount = needs(plan(source_of(kind, url=url)), 2, remote=url.startswith("s3")).memory
            assert amount.likely < 1.5 * GB, (kind, url)


def test_windows_are_of_lanes_so_more_workers_add_processes_and_no_windows() -> None:
    two, eight = (needs(plan(), workers, document=64 << 10) for workers in (2, 8))
    lanes = [sum(worker.windows.likely for worker in found.workers) for found in (two, eight)]
    assert lanes[0] < lanes[1] < 1.4 * lanes[0], "one window of each worker is there twice"
    assert eight.memory.likely - two.memory.likely > 6 * 80 * MB
    assert len(needs(plan(lanes=3), 8).workers) == 3


def test_more_ranks_need_less_each() -> None:
    assert needs(plan(), 2, ranks=4).memory.likely < needs(plan(), 2).memory.likely


@given(
    st.integers(0, 1 << 20),
    st.integers(1, GB),
    st.integers(0, 6),
    st.integers(100, 1 << 20),
    st.sampled_from([1, 6, 48]),
)
def test_the_likely_never_is_more_than_the_most_and_a_larger_buffer_never_needs_less(
    buffer: int, window: int, workers: int, document: int, lanes: int
) -> None:
    settings = {"lanes": lanes, "window_bytes": window}
    for seen in (True, False):
        less = needs(plan(**settings, shuffle_buffer=buffer), workers, document=document, seen=seen)
        more = needs(plan(**settings, shuffle_buffer=buffer + 1000), workers, document=document, seen=seen)
        assert 0 < less.memory.likely <= less.memory.most
        if buffer:
            assert less.memory.likely <= more.memory.likely


@pytest.mark.parametrize(
    ("source", "seen", "changes", "atleast"),
    [
        (source_of("jsonl.zst"), {"frame_window": 128 * MB}, {}, 48 * 128 * MB),
        (source_of("parquet"), {}, {}, 48 * 4 * MB),
        (source_of(url="s3://b/{}"), {"remote": True}, {}, 64 * MB),
        (source_of(), {}, {"packing": "best_fit", "seq_len": 32768}, 48 * 64 * 32768 * 4),
        (source_of(), {"document": MB, "seen": True}, {}, 48 * 32 * MB),
        (source_of(), {}, {"flags": True, "packing": "best_fit"}, 48 * 5 * (1 << 19)),
        (source_of(), {}, {"packing": "none", "group_by_length": True, "seq_len": 2048}, 48 * 512 * 2048 * 4),
    ],
    ids=["long zstd windows", "parquet", "read-ahead", "best fit", "large documents", "flags", "grouped by length"],
)
def test_what_takes_memory_is_counted(
    source: SourcePlan, seen: dict[str, Any], changes: dict[str, Any], atleast: int
) -> None:
    plain = needs(plan(), 1, document=2000, seen=True).memory.likely
    found = needs(plan(source, **changes), 1, **{"document": 12000, **seen}).memory.likely
    assert plain + atleast * 0.8 < found < plain + 2 * atleast + 48 * 6 * MB


def test_shared_memory_is_that_of_the_rings_that_are_made() -> None:
    of = plan(flags=True)
    context = multiprocessing.get_context("spawn")
    share = Share(of.lanes, 0, 1)
    total = 0
    for worker in range(2):
        unread: Any = None
        job = Job(of, unread, unread, unread, None, share, worker, 2, {}, 0, 0)
        ring = Ring.allocate(context, job.rows, job.layout)
        total += len(ring.memory)
        assert len(ring.memory) == ring_bytes(job.rows, Layout.of(of.rules))
    tables = sum(
        getattr(table, name).nbytes
        for table in (of.sources[0].shards, of.sources[0].units)
        for name in table.__dataclass_fields__
        if hasattr(getattr(table, name), "nbytes")
    )
    assert needs(of, 2).shm == total + tables
    assert needs(of, 0).shm == 0


def test_a_worker_has_a_shard_of_every_source_open_in_every_lane_and_of_stores_connections() -> None:
    one, many = worker_descriptors(plan(), 48), worker_descriptors(plan(*[source_of()] * 3), 48)
    assert (one, many - one) == (20 + 48, 2 * 48)
    assert worker_descriptors(plan(source_of(url="s3://b/{}")), 48) < 20 + 16
    record = Shape(fields=(Field("prompt", "prompt", "text"), Field("completion", "completion", "text")))
    assert worker_descriptors(plan(source_of("parquet", shape=record)), 48) >= 20 + 2 * 48
    assert worker_descriptors(plan(source_of("jsonl", shape=record)), 48) == one


# A glance


def one_shard(path: Path, kind: str) -> SourcePlan:
    shards = ShardTable.build([str(path)], [path.stat().st_size], [kind])
    return SourcePlan(shards, UnitTable.build([(0, 0, -1, 0, 1, path.stat().st_size)]), Shape(), 1.0)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "tsv.gz", "lines", "tar", "tar.gz"])
def test_a_glance_sees_how_large_documents_on_this_machine_are(tmp_path: Path, kind: str) -> None:
    path = write_shard(kind, tmp_path / f"x.{kind}", ["é" * 500, "x" * 3000, ""] * 20)
    assert glance(one_shard(path, kind))[:2] == (2000, True)


def test_of_what_lies_in_a_store_or_takes_arrow_the_usual_is_assumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_shard("parquet", tmp_path / "x.parquet", ["x" * 3000] * 20)
    monkeypatch.setattr("streamfeed.loader.glance.make_format", lambda *_: pytest.fail("it was read"))
    assert glance(one_shard(path, "parquet")) == Glance()
    assert glance(source_of("jsonl.zst", url="s3://bucket/{}.zst")) == Glance(
        USUAL_DOCUMENT, frame_window=USUAL_FRAME_WINDOW, remote=True
    )
    assert not glance(source_of("datasets/json {}", url="s3://bucket/{}")).seen


def test_a_glance_sees_the_window_of_a_zstd_frame(tmp_path: Path) -> None:
    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(packer.compress(json_lines(["some text"] * 99)) + packer.flush())
    assert glance(one_shard(path, "jsonl.zst")) == Glance(9, seen=True, frame_window=1 << 27)


def test_documents_that_are_files_are_as_large_as_the_listing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamfeed.loader.glance.make_format", lambda *_: pytest.fail("it was read"))
    assert glance(source_of("text", nbytes=2000 * 7000))[:2] == (7000, True)


@pytest.mark.parametrize("data", [b"", b"\x28\xb5\x2f\xfd\xff\xff", b"no json\n", b"\xff" * 100], ids=range(4))
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst", "tar", "csv"])
def test_what_is_damaged_or_gone_is_left_to_the_workers_to_report(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    source = one_shard(path, kind)
    assert glance(source).document > 0
    path.unlink()
    assert glance(source) == Glance(frame_window=USUAL_FRAME_WINDOW if kind.endswith("zst") else 0)


# What cannot fit


def refuse(found: Needs, machine: Machine, workers: int = 2, ranks: int = 1, **options: Any) -> None:
    refuse_what_cannot_fit(found, plan(), workers, machine, ranks, **options)


def test_memory_that_cannot_do_is_refused_with_need_room_and_knobs() -> None:
    found = needs(plan(), 2, document=MB, seen=True)
    with pytest.raises(ConfigError) as raised:
        refuse(found, Machine(memory=2 * GB, memory_of="the cgroup of this process (memory.max)"), ranks=2)
    said = str(raised.value)
    assert "num_workers=2 would take about" in said
    assert "GB of memory (windows " in said
    assert "the cgroup of this process (memory.max) has 1.1 GB left for each of 2 ranks here" in said
    assert "lower shuffle_buffer=16384 or window_bytes=67108864" in said
    assert "each worker less saves 94 MB" in said


def test_memory_that_does_unless_documents_are_large_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = needs(plan(), 2)
    assert found.memory.likely < 2 * GB < found.memory.most
    refuse(found, Machine(memory=2 * GB))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "window_bytes=67108864 may take" in record.getMessage()
    caplog.clear()
    refuse(found, Machine(memory=found.memory.most))
    refuse(found, Machine(memory=None))
    assert not caplog.records


def test_shared_memory_that_is_not_there_is_refused_with_the_flag_of_docker() -> None:
    found = needs(plan(), 16)
    with pytest.raises(
        ConfigError, match=r"/dev/shm has 67 MB left: .*docker run --shm-size=1g .*or take fewer workers"
    ):
        refuse(found, Machine(shm=64 * MB), 16)
    with pytest.raises(ConfigError, match="for each of 4 ranks here"):
        refuse(found, Machine(shm=GB // 4), 16, ranks=4)
    refuse(found, Machine(shm=GB), 16)
    refuse(found, Machine(shm=None), 16)
    refuse(needs(plan(), 0), Machine(shm=0), 0)


def test_four_workers_of_the_defaults_fit_into_what_docker_gives() -> None:
    refuse(needs(plan(), 4), Machine(shm=64 * MB), 4)


def test_files_beyond_the_hard_limit_are_refused_with_ulimit() -> None:
    many = needs(plan(*[source_of()] * 30), 1)
    with pytest.raises(
        ConfigError, match=r"a worker would have up to 1,460 files open .*hard limit is 1,024: .*ulimit -n 1524"
    ):
        refuse(many, Machine(descriptors=Descriptors(256, 1024, 10)), 1)
    with pytest.raises(ConfigError, match=r"this process would have up to 400 files open .*fewer workers"):
        refuse(needs(plan(), 48), Machine(descriptors=Descriptors(256, 256, 96)), 48)
    with pytest.raises(ConfigError, match="some workers"):
        refuse(needs(plan(), 0), Machine(descriptors=Descriptors(64, 64, 20)), 0)


def test_files_beyond_the_soft_limit_raise_it_where_they_are_opened(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asked: list[int] = []

    def allow(count: int) -> bool:
        asked.append(count)
        return True

    machine = Machine(descriptors=Descriptors(60, 4096, 20))
    refuse(needs(plan(), 1), machine, 1, allow=allow)
    assert not asked, "a worker has many open, this process few"
    refuse(needs(plan(), 0), machine, 0, allow=allow)
    assert asked == [20 + 68 + 64]
    assert [record.getMessage() for record in caplog.records] == [
        "workers raise their limit of open files from 60 to 68",
        "the limit of open files is raised from 60 to 152 (the hard one is 4096)",
    ]
    with pytest.raises(ConfigError, match="cannot be raised: set it before the start, as in ulimit -n 152"):
        refuse(needs(plan(), 0), machine, 0, allow=lambda _: False)


def test_enough_of_everything_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refuse(SMALL, Machine(2 * GB, "this machine", 64 * MB, Descriptors(1024, 4096, 40)), 1)
    assert not caplog.records


# How many workers


def test_as_many_workers_as_cores_beside_the_trainer_s_and_no_more_than_lanes() -> None:
    assert suggest_workers(8, 48)[0] == 7
    assert suggest_workers(8, 4) == (4, "4 lane(s) on this rank, and a worker without a lane does nothing")
    assert suggest_workers(1, 48)[0] == 1
    assert suggest_workers(16, 48, engine_threads=4).workers == 3


def test_where_rates_are_known_as_few_workers_as_keep_training_from_waiting() -> None:
    enough = suggest_workers(16, 48, worker_tokens_per_s=10e6, training_tokens_per_s=20e6)
    assert (enough.workers, "a worker gives 10,000,000" in enough.why) == (3, True)
    assert suggest_workers(16, 48, worker_tokens_per_s=10e6, training_tokens_per_s=1000).workers == 1
    short = suggest_workers(4, 48, worker_tokens_per_s=1e6, training_tokens_per_s=20e6)
    assert short.workers == 3
    assert "25 workers would keep up with; there is room for 3: 4 core(s)" in short.why


def test_a_number_of_workers_that_is_plainly_off_is_said() -> None:
    assert "hosts 4 lane(s): 4 worker(s) start" in off_by_much(8, 4, 16)
    assert "num_workers=8 on 2 core(s)" in off_by_much(8, 48, 2)
    assert [off_by_much(workers, 48, 2) for workers in (0, 1, 2)] == ["", "", ""]


# In a loader


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any) -> StreamConfig:
    write_shard("jsonl", tmp_path / "corpus" / "0.jsonl", texts_with_ids(60))
    return StreamConfig([Source(str(tmp_path / "corpus"))], tokenizer, seq_len=32, lanes=4)


@pytest.mark.usefixtures("one_engine")
def test_a_loader_is_refused_before_anything_is_started_and_says_that_workers_are_too_many(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    look: Callable[[], Machine] = lambda: Machine(memory=10 * MB)  # noqa: E731
    monkeypatch.setattr("streamfeed.loader.advice.Machine.look", look)
    with pytest.raises(ConfigError, match="num_workers=5 would take about"):
        StreamLoader(config, 4, num_workers=5, cache_dir=CACHE, start_method="spawn")
    monkeypatch.setattr("streamfeed.loader.advice.Machine.look", lambda: Machine())
    StreamLoader(config, 4, num_workers=5, cache_dir=CACHE, start_method="spawn")
    assert "num_workers=5, and this rank hosts 4 lane(s)" in caplog.text


@pytest.mark.usefixtures("one_engine")
def test_shared_memory_that_filled_up_meanwhile_is_refused_at_the_start(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = StreamLoader(config, 4, num_workers=1, cache_dir=CACHE, start_method="spawn")
    monkeypatch.setattr("streamfeed.loader.crew.Machine.look", lambda: Machine(shm=MB))
    with pytest.raises(ConfigError, match="/dev/shm has 1 MB left"):
        next(iter(loader))
    assert not loader._crew.workers
    check_shared_memory(MB, Machine(shm=MB))


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="reads PSS")
def test_a_real_worker_takes_what_is_likely_or_down_to_half_of_it(tmp_path: Path, tokenizer_folder: Path) -> None:
    draw = Random(0)
    texts = [" ".join(f"{draw.randrange(1 << 30):x}" for _ in range(450)) for _ in range(200)]
    for shard in range(8):
        lines = json_lines([f"{shard} {text}" for text in texts * 12])
        (tmp_path / f"{shard}.jsonl").write_bytes(lines)
    config = StreamConfig([Source(str(tmp_path))], str(tokenizer_folder), lanes=8, shuffle_buffer=8 * 2000)
    with StreamLoader(config, 8, num_workers=1, cache_dir=CACHE) as loader:
        seen = glance(loader.plan.sources[0])
        likely = needs_of(loader.plan, Share(8, 0, 1), [seen], 1, loader.tokenizer).workers[0].memory.likely
        peak = 0
        for number, _ in enumerate(loader):
            if number % 64 == 0:
                (worker,) = loader._crew.workers
                peak = max(peak, psutil.Process(worker._process.pid).memory_full_info().pss)
            if number == 2000:
                break
    assert peak <= likely <= 2 * peak, (peak / 1e6, likely / 1e6)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="counts on descriptors of Linux")
def test_a_worker_opens_more_shards_than_the_soft_limit_allows(tmp_path: Path, tokenizer_folder: Path) -> None:
    for shard in range(64):
        write_shard("jsonl", tmp_path / "corpus" / f"{shard:03}.jsonl", texts_with_ids(60, first=60 * shard))
    code = f"""
        import resource
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        from streamfeed import Source, StreamConfig, StreamLoader
        from pathlib import Path
        config = StreamConfig([Source({str(tmp_path / "corpus")!r})], {str(tokenizer_folder)!r}, seq_len=32, lanes=64)
        with StreamLoader(config, 64, num_workers=1, cache_dir=Path({str(CACHE)!r})) as loader:
            print(len(next(iter(loader))["input_ids"]), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["64", "64"], "the trainer's own limit is left alone"
