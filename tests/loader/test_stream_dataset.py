"""StreamDataset under torch's loaders: every row once, and an exact resume on the same topology."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from streamfeed import StreamConfig, StreamDataset, StreamLoader
from streamfeed.errors import EmptyStreamError, StateError
from tests.corpora import id_of, write_shard
from tests.streams import CACHE, corpus, stream

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import torch

RECORDS = [40, 25, 33]
Row = tuple[tuple[int, ...], ...]

pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any) -> StreamConfig:
    corpus(tmp_path, "jsonl", RECORDS, words=20)
    return stream(tmp_path, "jsonl", tokenizer, lanes=4, epochs=1)


def dataset(config: StreamConfig, rank: int = 0, world_size: int = 1) -> StreamDataset:
    return StreamDataset(config, rank=rank, world_size=world_size, cache_dir=CACHE)


def rows_of(batches: Iterable[dict[str, torch.Tensor]]) -> list[Row]:
    names = ("input_ids", "labels", "position_ids")
    return [
        tuple(tuple(batch[name][row].tolist()) for name in names)
        for batch in batches
        for row in range(len(batch["input_ids"]))
    ]


def stream_rows(config: StreamConfig, passes: int = 1) -> Counter[Row]:
    """Every row that holds a token, of StreamLoader."""
    loader = StreamLoader(config, 1, rank=0, world_size=1, cache_dir=CACHE)
    return Counter(row for _ in range(passes) for row in rows_of(loader) if any(label != -100 for label in row[1]))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_an_epoch_under_data_loader_is_every_row_of_the_stream_once(
    config: StreamConfig, tokenizer: Any, workers: int
) -> None:
    rows = rows_of(DataLoader(dataset(config), batch_size=3, num_workers=workers))
    assert Counter(rows) == stream_rows(config)
    one_lane = StreamDataset(
        StreamConfig(config.sources, tokenizer=tokenizer, seq_len=32, lanes=1, epochs=1),
        rank=0,
        world_size=1,
        cache_dir=CACHE,
    )
    tokens = [token for row in rows_of(DataLoader(one_lane, batch_size=1)) for token in row[0]]
    documents = [text for text in tokenizer.decode(tokens).split(tokenizer.eos_token) if text]
    assert Counter(map(id_of, documents)) == Counter(range(sum(RECORDS)))


def test_ranks_share_the_rows(config: StreamConfig) -> None:
    parts = [rows_of(DataLoader(dataset(config, rank, 3), batch_size=2)) for rank in range(3)]
    assert all(parts)
    assert Counter(row for part in parts for row in part) == stream_rows(config)


def test_iterating_again_begins_the_next_pass(config: StreamConfig) -> None:
    data = dataset(config)
    found = Counter(row for _ in range(2) for row in rows_of(DataLoader(data, batch_size=1)))
    assert found == stream_rows(config, passes=2)


def stateful(config: StreamConfig, workers: int) -> StatefulDataLoader[Any]:
    return StatefulDataLoader(dataset(config), batch_size=3, num_workers=workers)


@pytest.mark.parametrize(
    ("workers", "stops"),
    [(0, range(0, 30, 3)), pytest.param(2, [1, 8, 17], marks=pytest.mark.processes)],
    ids=["here", "2 workers"],
)
def test_stateful_data_loader_resumes_exactly(config: StreamConfig, workers: int, stops: Iterable[int]) -> None:
    whole = [rows_of([batch]) for batch in stateful(config, workers)]
    assert len(whole) > 20
    for stop in stops:
        loader = stateful(config, workers)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        del batches
        fresh = stateful(config, workers)
        fresh.load_state_dict(state)
        assert [rows_of([batch]) for batch in fresh] == whole[stop:], stop


def test_the_state_at_the_end_of_a_pass_begins_the_next(config: StreamConfig) -> None:
    data = dataset(config)
    first = rows_of(DataLoader(data, batch_size=1))
    state = json.loads(json.dumps(data.state_dict()))
    assert state["ended"]
    fresh = dataset(config)
    fresh.load_state_dict(state)
    second = rows_of(DataLoader(fresh, batch_size=1))
    assert Counter(first) + Counter(second) == stream_rows(config, passes=2)


def test_a_state_at_every_row_continues_behind_it(config: StreamConfig) -> None:
    data = dataset(config)
    rows, states = [], [data.state_dict()]
    for row in data:
        rows.append(row["input_ids"].tolist())
        states.append(data.state_dict())
    for taken in range(0, len(rows) + 1, 5):
        fresh = dataset(config)
        fresh.load_state_dict(states[taken])
        assert [row["input_ids"].tolist() for row in fresh] == rows[taken:], taken


def test_a_state_of_another_topology_is_refused(config: StreamConfig) -> None:
    data = dataset(config)
    next(iter(data))
    state = data.state_dict()
    other = dataset(config, 1, 2)
    other.load_state_dict(state)
    with pytest.raises(StateError, match=r"rank 0 of 1, worker 0 of 1, this is rank 1 of 2, worker 0 of 1"):
        next(iter(other))


@pytest.mark.parametrize("state", [{}, {"stream": {}}, {"taken": 1}, {"stream": {"version": 1}, "taken": "x"}], ids=str)
def test_a_damaged_state_is_refused(config: StreamConfig, state: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        dataset(config).load_state_dict(state)


def test_a_pass_without_a_row_is_an_error(tmp_path: Path, tokenizer: Any) -> None:
    write_shard("jsonl", tmp_path / "a.jsonl", [None, "", None])
    for lanes in (1, 2):
        with pytest.raises(EmptyStreamError, match="3 records were read, 2 null, 1 empty"):
            list(dataset(stream(tmp_path, "jsonl", tokenizer, lanes=lanes, epochs=1)))
