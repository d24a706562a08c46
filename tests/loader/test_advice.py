"""What a loader that has not started is refused for, and told."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.errors import ConfigError
from streamfeed.loader.advice import check_shared_memory, off_by_much, refuse_what_cannot_fit, suggest_workers
from streamfeed.loader.needs import MB, Needs
from streamfeed.machine import Descriptors, Machine
from tests.corpora import texts_with_ids, write_shard
from tests.loader.large_plans import GB, needs, plan, source_of
from tests.streams import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = needs(plan(source_of(nbytes=MB)), 1)


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


@pytest.mark.parametrize("workers", [1, 4, 8])
@pytest.mark.parametrize("changes", [{}, {"packing": "best_fit"}, {"packing": "best_fit", "flags": True}])
def test_eight_workers_of_any_packing_fit_into_what_docker_gives(workers: int, changes: dict[str, Any]) -> None:
    refuse(needs(plan(**changes), workers), Machine(shm=64 << 20), workers)


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
        source, options = Source({str(tmp_path / "corpus")!r}), {{"lanes": 64, "shuffle_buffer": 64}}
        config = StreamConfig([source], {str(tokenizer_folder)!r}, seq_len=32, **options)
        with StreamLoader(config, 64, num_workers=1, cache_dir=Path({str(CACHE)!r})) as loader:
            print(len(next(iter(loader))["input_ids"]), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["64", "64"], "the trainer's own limit is left alone"
