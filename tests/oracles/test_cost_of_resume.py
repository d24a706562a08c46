"""The cost of a resume: what is read again does not grow with the way that was come, and the state is small."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.errors import ReplayError
from tests.corpora import FIELDS, SEEKABLE, texts_with_ids, write_corpus
from tests.streams import CACHE, InProcessLoader, stream, take

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")

CHUNK = 1 << 20
"""No format reads more than this at a time."""


@pytest.fixture(autouse=True)
def _one_round_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is that of a message's beginning, so a resume reads up to a message again; this leaves that out."""
    monkeypatch.setattr("streamfeed.loader.job.MESSAGE_BYTES", 1)


def large_corpus(kind: str, folder: Path, shards: int, parts: int) -> int:
    """Write 8 MB of text that compresses to half at most; return the stored bytes."""
    draw = Random(0)
    texts = [draw.randbytes(1000).hex() for _ in range(4000)]
    return sum(path.stat().st_size for path in write_corpus(kind, folder, texts, shards=shards, parts=parts))


def loader_of(config: StreamConfig, state: dict[str, Any] | None = None) -> InProcessLoader:
    loader = InProcessLoader(config, 16, cache_dir=CACHE)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def bytes_of_resumes(config: StreamConfig) -> dict[int, int]:
    """Return what a resume at 10, 50 and 90 % of a pass reads until its first batch."""
    loader = loader_of(config)
    states = [json.dumps(loader.state_dict()) for _ in loader]
    assert len(states) > 50
    found: dict[int, int] = {}
    for percent in (10, 50, 90):
        resumed = loader_of(config, json.loads(states[len(states) * percent // 100]))
        take(resumed, 1)
        found[percent] = resumed.report().bytes_read
    return found


def config_of(kind: str, folder: Path, tokenizer: Any, lanes: int) -> StreamConfig:
    return stream(folder, kind, tokenizer, lanes=lanes, epochs=1, seq_len=2048, shuffle_buffer=20 * lanes)


@pytest.mark.parametrize("kind", SEEKABLE)
def test_a_resume_at_90_percent_reads_what_one_at_10_percent_reads(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    size = large_corpus(kind, tmp_path, shards=1, parts=40)
    found = bytes_of_resumes(config_of(kind, tmp_path, tokenizer, lanes=1))
    assert max(found.values()) - min(found.values()) <= CHUNK, found
    headers = 4000 * 2 * 512 if kind == "tar" else 0  # those of a whole archive are read at each resume
    assert max(found.values()) - headers <= size / 5, found


@pytest.mark.parametrize("kind", ["jsonl.gz", "jsonl.zst"])
def test_a_resume_reads_at_most_one_shard_a_lane_again_where_shards_cannot_be_entered(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    shards, lanes = 8, 2
    size = large_corpus(kind, tmp_path, shards=shards, parts=1)
    found = bytes_of_resumes(config_of(kind, tmp_path, tokenizer, lanes))
    ahead = 400_000  # of the next shard, where a window reaches into it
    assert max(found.values()) <= lanes * (size / shards * 1.05 + ahead), (found, size)


def test_the_state_of_48_lanes_is_small_and_soon_made(tmp_path: Path, tokenizer: Any) -> None:
    for name in ("a", "b"):
        write_corpus("jsonl", tmp_path / name, texts_with_ids(960, words=40), shards=48)
    sources = [Source(str(tmp_path / "a")), Source(str(tmp_path / "b"), weight=0.3)]
    config = replace(stream(tmp_path, "jsonl", tokenizer, lanes="auto", shuffle_buffer=480), sources=sources)
    loader = loader_of(config)
    assert loader.plan.lanes == 48
    times = []
    for _ in range(5):
        take(loader, 7)
        begin = time.perf_counter()
        state = loader.state_dict()
        times.append(time.perf_counter() - begin)
    assert len(state["lanes"]) == 48
    assert len(json.dumps(state)) < 64 << 10
    print(f"state of 48 lanes: {len(json.dumps(state)):,} bytes of JSON in {min(times) * 1000:.2f} ms")
    assert min(times) < 0.05


@pytest.mark.parametrize("kind", ["jsonl", "tar"])
def test_texts_changed_since_the_state_are_an_error(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    (path,) = write_corpus(kind, tmp_path, texts_with_ids(60, words=40))
    config = replace(
        stream(tmp_path, kind, tokenizer, lanes=1, shuffle_buffer=30), sources=[Source(str(tmp_path), FIELDS[kind])]
    )
    loader = InProcessLoader(config, 1, cache_dir=CACHE)
    take(loader, 5)
    state = loader.state_dict()
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"id=3;', b'"id=X;'))
    assert path.stat().st_size == len(content)
    with pytest.raises(ReplayError, match=r"source 0, .*part-00000.*the shards changed"):
        take(loader_of(config, state), 1)
    path.write_bytes(content)
    assert take(loader_of(config, state), 1)
