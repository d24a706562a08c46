"""Batches in groups: the same batches as one by one, nothing waited for, and no state ahead of its batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.dataset.message import Layout
from streamfeed.dataset.share import Share
from streamfeed.loader.assembly import MOST_BATCHES, Assembler
from streamfeed.loader.reader import RankReader
from tests.corpora import texts_with_ids, write_corpus
from tests.loader.channels import SEQ_LEN, FakeChannel, Rows
from tests.streams import CACHE, InProcessLoader, equal, stream, take

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed import StreamConfig

PAD = 99
Batches = list[tuple[list[list[list[int]]], int, int]]


def assembler(channels: list[FakeChannel], slots: int, rows: int, *, grouped: bool) -> Assembler:
    made = Assembler(RankReader(Share(slots, 0, 1), channels, 0), rows, PAD, Layout(SEQ_LEN, SEQ_LEN))
    assert made._most == MOST_BATCHES
    if not grouped:
        made._most = 1
    return made


def batches(source: Assembler) -> Batches:
    found = []
    while (one := source.next()) is not None:
        found.append(([tensor.tolist() for tensor in one.batch.values()], one.tokens, one.empty_rows))
    return found


def channels_of(slots: int, workers: int, lengths: list[int], size: int) -> list[FakeChannel]:
    """Rows of every worker, in messages of ``size`` rows."""
    found = []
    for worker in range(workers):
        mine = [t for t in range(len(lengths)) if t % slots % workers == worker]
        found.append(FakeChannel.cut(Rows.of(mine, [lengths[t] for t in mine]), range(size, len(mine), size)))
    return found


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, list[int], int]:
    slots = draw(st.integers(1, 4))
    full = [SEQ_LEN] * (slots * draw(st.integers(0, 20)))
    tail = [draw(st.integers(0, SEQ_LEN)) for _ in range(slots * draw(st.integers(1, 4)))]
    return slots, draw(st.integers(1, slots)), full + tail, draw(st.integers(1, 40))


@given(streams(), st.integers(1, 5))
def test_groups_are_the_batches_that_come_one_by_one(stream: tuple[int, int, list[int], int], rows: int) -> None:
    slots, workers, lengths, size = stream
    one_by_one = batches(assembler(channels_of(slots, workers, lengths, size), slots, rows, grouped=False))
    assert batches(assembler(channels_of(slots, workers, lengths, size), slots, rows, grouped=True)) == one_by_one
    assert sum(tokens for _, tokens, _ in one_by_one) == sum(lengths)


def test_a_group_waits_for_no_message_that_its_first_batch_does_not_need() -> None:
    """Of three slots the first worker hosts two: of as many rows at hand it can give fewer batches."""
    channels = channels_of(3, 2, [SEQ_LEN] * 90, 15)
    source = assembler(channels, 3, 3, grouped=True)
    source.next()
    assert [channel.received for channel in channels] == [1, 1]
    for _ in range(6):
        source.next()
    assert [channel.received for channel in channels] == [1, 1]
    source.next()
    assert [channel.received for channel in channels] == [2, 1]


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any) -> StreamConfig:
    write_corpus("parquet", tmp_path, texts_with_ids(300), shards=4)
    return stream(tmp_path, "parquet", tokenizer, epochs=1)


@pytest.mark.usefixtures("one_engine")
def test_a_resume_inside_a_group_is_exact(config: StreamConfig) -> None:
    loader = InProcessLoader(config, 2, workers=2, cache_dir=CACHE)
    whole, states, waiting = [], [], []
    while batch := take(loader, 1):
        whole += batch
        states.append(json.loads(json.dumps(loader.state_dict())))
        waiting.append(len(loader._turns._reader._ready) if loader._turns is not None else 0)
    inside = [index for index, count in enumerate(waiting) if 0 < count < MOST_BATCHES]
    assert len(inside) >= MOST_BATCHES
    for index in inside[:: max(1, len(inside) // 5)]:
        resumed = InProcessLoader(config, 2, cache_dir=CACHE)
        resumed.load_state_dict(states[index])
        assert equal(take(resumed), whole[index + 1 :]), index
