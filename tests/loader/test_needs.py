"""What a loader needs: estimated before it starts, and held against a real worker."""

from __future__ import annotations

import multiprocessing
import sys
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
from streamfeed.formats.shape import Field, Shape
from streamfeed.loader.glance import USUAL_DOCUMENT, USUAL_FRAME_WINDOW, Glance, glance
from streamfeed.loader.job import Job
from streamfeed.loader.needs import MB, needs_of, worker_descriptors
from streamfeed.loader.ring import Ring, ring_bytes
from streamfeed.plan.plan import SourcePlan
from streamfeed.plan.shards import ShardTable, UnitTable
from tests.corpora import json_lines, write_shard
from tests.loader.large_plans import GB, needs, plan, source_of
from tests.streams import CACHE

if TYPE_CHECKING:
    from pathlib import Path

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


# Real workers


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
