"""Whatever is made slow on purpose is what the loader blames, with and without workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamLoader
from streamfeed.encode.engines import build_engine
from streamfeed.loader.bottleneck import Bottleneck, Watch
from tests.streams import CACHE, corpus, stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfeed.config import StreamConfig
    from streamfeed.encode.protocol import Encoded, Engine

WORKERS = [0, pytest.param(1, marks=pytest.mark.processes)]
SLOW_S = 0.02


def blamed(config: StreamConfig, workers: int, batches: int = 12, step_s: float = 0.0) -> Bottleneck:
    """What the loader blames for the time of some batches, the first few left out."""
    with StreamLoader(config, 4, num_workers=workers, start_method="fork", cache_dir=CACHE) as loader:
        stream_of_batches = iter(loader)
        for _ in range(4):
            next(stream_of_batches)
        watch, waited, begin = Watch(loader), 0.0, time.perf_counter()
        for _ in range(batches):
            asked = time.perf_counter()
            next(stream_of_batches)
            waited += time.perf_counter() - asked
            time.sleep(step_s)
        return watch.lap(waited, time.perf_counter() - begin)


@pytest.fixture(autouse=True)
def _small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first of them would hold all that is asked for."""
    monkeypatch.setattr("streamfeed.loader.job.MESSAGE_BYTES", 1024)
    monkeypatch.setattr("streamfeed.lane.sampling.SLICE_BYTES", 1024)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_store_that_takes_its_time_is_named(tmp_path: Path, tokenizer: Any, workers: int) -> None:
    corpus(tmp_path, "jsonl", [12] * 24, words=20)  # every shard is a request, and more
    source = Source(f"flaky://{tmp_path}", storage_options={"latency_s": SLOW_S})
    found = blamed(stream(tmp_path, "jsonl", tokenizer, sources=[source], shuffle_buffer=0), workers, batches=100)
    assert found.stage == "read"
    assert "bring the shards nearer" in found.advice


class SlowEngine:
    """A tokenizer that thinks about every text."""

    name = "slow"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def encode(self, texts: Sequence[str]) -> Encoded:
        time.sleep(SLOW_S)
        return self._engine.encode(texts)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_tokenizer_that_is_slow_is_named(
    tmp_path: Path, tokenizer: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path, "jsonl", [40, 40, 40, 40], words=20)
    build = "streamfeed.encode.objectives.build.build_engine"
    monkeypatch.setattr(build, lambda spec, verdict, **_: SlowEngine(build_engine(spec, verdict)))
    assert blamed(stream(tmp_path, "jsonl", tokenizer), workers).stage == "encode"


def thinks(record: dict[str, Any]) -> dict[str, Any]:
    """A function that takes its time."""
    time.sleep(SLOW_S / 10)
    return record


@pytest.mark.parametrize("workers", WORKERS)
def test_a_function_of_the_users_that_is_slow_is_named(tmp_path: Path, tokenizer: Any, workers: int) -> None:
    corpus(tmp_path, "jsonl", [40, 40, 40, 40], words=20)
    found = blamed(stream(tmp_path, "jsonl", tokenizer, sources=[Source(str(tmp_path), map=thinks)]), workers)
    assert found.stage == "map"
    assert "your map function" in str(found)


@pytest.mark.processes
def test_training_that_takes_its_time_is_named_and_no_stage_is(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 40, 40, 40], words=20)
    found = blamed(stream(tmp_path, "jsonl", tokenizer), 1, batches=8, step_s=0.2)
    assert (found.stage, found.advice) == ("training", "")
