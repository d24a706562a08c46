"""Resume: at every batch of a run, once and again, a fresh process continues to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from tests.corpora import CURSOR_KINDS, TOKENS
from tests.resuming import check_every_batch
from tests.streams import Run, corpus, equal, stream, take

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")


def fresh(config: StreamConfig, state: dict[str, Any] | None = None) -> Run:
    return Run.start(config, 1, 2, workers=2, state=state)


@pytest.mark.parametrize("kind", [*CURSOR_KINDS, TOKENS])
def test_resumes_exactly_at_every_batch_of_a_repeating_stream(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, kind, [20, 13, 16], words=40)
    check_every_batch(stream(tmp_path, kind, tokenizer, lanes=3, shuffle_buffer=15), most=45)


@pytest.mark.parametrize("kind", [*CURSOR_KINDS, TOKENS])
def test_resumes_exactly_at_every_batch_of_a_finite_pass(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, kind, [20, 13, 16], words=16)
    check_every_batch(stream(tmp_path, kind, tokenizer, lanes=4, shuffle_buffer=12, epochs=2), most=None)


@pytest.mark.parametrize(
    "changes",
    [
        {"shuffle_buffer": 0},
        {"shuffle_buffer": 1000, "lanes": 1},
        {"window_bytes": 200},
        {"window_bytes": 1},
        {"seq_len": 7},
        {"seq_len": 500},
    ],
    ids=str,
)
def test_resumes_exactly_with_windows_and_rows_of_any_size(
    changes: dict[str, Any], tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path, "jsonl", [30, 22, 18], words=100)
    check_every_batch(stream(tmp_path, "jsonl", tokenizer, **{"lanes": 2, "shuffle_buffer": 8, **changes}), most=40)


def test_resumes_exactly_with_a_mixture_of_sources(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path / "a", "parquet", [20, 14], words=40)
    corpus(tmp_path / "b", "jsonl.zst", [9], words=10)
    corpus(tmp_path / "c", "tar", [7, 3], words=150)
    sources = [
        Source(str(tmp_path / "a"), weight=3),
        Source(str(tmp_path / "b"), weight=1),
        Source(str(tmp_path / "c"), text="json.text", weight=0.5),
    ]
    config = replace(stream(tmp_path, "parquet", tokenizer, lanes=3), sources=sources)
    check_every_batch(config, most=40)
    check_every_batch(replace(config, epochs=1), most=None)


def test_resumes_again_and_again(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl.gz", [20, 13, 16], words=60)
    config = stream(tmp_path, "jsonl.gz", tokenizer, lanes=3)
    whole = take(fresh(config).loaders[0], 60)
    found, state = [], None
    for step in (1, 2, 3, 5, 8, 13, 1, 1, 26):
        run = fresh(config, state)
        found += take(run.loaders[0], step)
        state = run.state()
    assert equal(found, whole)


def test_a_state_taken_twice_without_a_batch_between_is_the_same(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "parquet", [20, 13])
    config = stream(tmp_path, "parquet", tokenizer, lanes=2)
    run = fresh(config)
    first = run.state()
    assert fresh(config, first).state() == first
    run.take(7)
    state = run.state()
    assert run.state() == state
    assert fresh(config, state).state() == state


def test_the_state_as_of_an_earlier_batch_continues_behind_it(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 33])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2)
    run = fresh(config)
    whole = take(run.loaders[0], 30)
    for batches in (0, 1, 12, 29, 30):
        state = run.state(batches)
        assert state["rows"] == 2 * batches
        assert equal(take(fresh(config, state).loaders[0], 30 - batches), whole[batches:])


def test_a_state_at_the_end_of_a_pass_begins_the_next_pass(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "parquet", [20, 13])
    config = stream(tmp_path, "parquet", tokenizer, lanes=2, epochs=1)
    run = fresh(config)
    first = take(run.loaders[0])
    state = run.state()
    second = take(run.loaders[0])
    assert not equal(first, second)
    assert equal(take(fresh(config, state).loaders[0]), second)


def test_breaking_off_and_iterating_again_goes_on(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 33])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2)
    whole = take(fresh(config).loaders[0], 20)
    loader = fresh(config).loaders[0]
    parts = take(loader, 7) + take(loader, 6)
    loader.close()
    assert equal(parts + take(loader, 7), whole)
    assert loader.report().batches == 20
    loader.reset()
    assert (loader.report().batches, loader.report().tally.records) == (0, 0)
    assert equal(take(loader, 20), whole)
    assert loader.report().batches == 20


def test_a_batch_smaller_than_the_number_of_workers_leaves_a_whole_state(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 33, 20, 28])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=4)
    whole = take(Run.start(config, 1, 1, workers=4).loaders[0], 12)
    for batches in range(1, 6):
        run = Run.start(config, 1, 1, workers=4)
        run.take(batches)
        assert len(run.state()["lanes"]) == 4
        assert equal(
            take(Run.start(config, 1, 1, workers=3, state=run.state()).loaders[0], 12 - batches), whole[batches:]
        )
