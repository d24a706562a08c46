"""Whether the next batch is at hand: what says so is not waited for, and comes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.dataset.message import Layout
from streamfeed.dataset.share import Share
from streamfeed.errors import RankError
from streamfeed.loader.assembly import Assembler
from streamfeed.loader.reader import RankReader
from streamfeed.loader.votes import Turns, Votes
from tests.loader.channels import SEQ_LEN, FakeChannel, Rows
from tests.loader.test_assembly import PAD, streams
from tests.loader.test_votes import Own
from tests.streams import CACHE, InProcessLoader, corpus, equal, stream, take
from tests.threads import ThreadRanks, on_ranks

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed import StreamConfig


@dataclass
class Slow(FakeChannel):
    """Notes when it was waited for."""

    waited: int = 0

    def receive(self) -> Any:
        if not self.ready():
            self.waited += 1
            self.arrives = self.received + 1
        return super().receive()


def slow_channels(slots: int, workers: int, lengths: list[int], size: int, error: Exception | None) -> list[Slow]:
    found = []
    for worker in range(workers):
        mine = [t for t in range(len(lengths)) if t % slots % workers == worker]
        cut = FakeChannel.cut(Rows.of(mine, [lengths[t] for t in mine]), range(size, len(mine), size))
        found.append(Slow(cut.messages, error))
    return found


def made_of(channels: list[Slow], slots: int, rows: int) -> Assembler:
    return Assembler(RankReader(Share(slots, 0, 1), channels, 0), rows, PAD, Layout(SEQ_LEN, SEQ_LEN))


def all_batches(source: Assembler) -> list[Any]:
    found = []
    while (one := source.next()) is not None:
        found.append([tensor.tolist() for tensor in one.batch.values()])
    return found


@settings(max_examples=150)
@given(streams(), st.integers(1, 7), st.integers(0, 999), st.booleans())
def test_a_batch_that_is_ready_is_there_without_waiting_however_messages_arrive(
    made: tuple[int, int, list[int], int], rows: int, seed: int, fails: bool
) -> None:
    chance = random.Random(seed)
    error = ValueError("damaged") if fails else None
    channels = slow_channels(*made, error)
    source = made_of(channels, made[0], rows)
    found = []
    try:
        while True:
            for channel in channels:
                channel.arrives = max(channel.arrives, channel.received) + chance.randint(0, 2)
            ready, waited = source.ready(), [channel.waited for channel in channels]
            one = source.next()
            if ready:
                assert one is not None
                assert [channel.waited for channel in channels] == waited
            if one is None:
                break
            found.append([tensor.tolist() for tensor in one.batch.values()])
    except ValueError:
        assert fails
        if ready:
            assert [channel.waited for channel in channels] == waited
    if not fails:
        assert found == all_batches(made_of(slow_channels(*made, None), made[0], rows))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 9))
def test_all_batches_of_full_rows_are_ready_once_they_have_arrived_and_none_before(
    slots: int, workers: int, rows: int, size: int
) -> None:
    lengths = [SEQ_LEN] * (slots * rows * 4)
    channels = slow_channels(slots, min(workers, slots), lengths, size, None)
    source = made_of(channels, slots, rows)
    assert not source.ready()
    for channel in channels:
        channel.arrives = len(channel.messages) + 1
    for _ in range(len(lengths) // rows):
        assert source.ready()
        assert source.next() is not None
    assert not source.ready(), "there is no more"
    assert not source.ready(blank=True), "which is known only once it was asked for"
    assert source.next() is None
    assert source.ready(blank=True)
    assert sum(channel.waited for channel in channels) == 0


@settings(max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=4), st.integers(0, 9), st.integers(0, 999))
def test_looking_at_an_answer_at_any_moment_changes_no_vote(ends: list[int], reach: int, seed: int) -> None:
    """Ranks that look at answers at different batches still put their questions at the same ones."""

    def work(ranks: ThreadRanks) -> int:
        chance = random.Random(seed * 10 + ranks.number)
        own = Own(ends[ranks.number], reach, chance)
        votes = Votes(ranks, own, 1)
        batch = 0
        while True:
            ready = any(votes.ready(batch) for _ in range(chance.randint(0, 2)))
            waited = own.waited
            if not votes.exists(batch):
                assert not ready
                return batch
            assert not ready or own.waited == waited
            own.taken = min(batch + 1, own.end)
            batch += 1

    assert on_ranks(len(ends), work) == [max(ends)] * len(ends)


def test_a_rank_that_has_left_is_ready_to_be_heard_of() -> None:
    def work(ranks: ThreadRanks) -> bool:
        if ranks.number == 1:
            Votes.leave(ranks)
            return True
        votes = Votes(ranks, Own(9, 0, random.Random(0)), 1)
        votes._ask(0, wait=False)
        assert votes._asked is not None
        votes._asked.answer()
        assert votes.ready(0)
        with pytest.raises(RankError, match="rank 1 failed, or left"):
            votes.exists(0)
        return True

    assert all(on_ranks(2, work))


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any, one_engine: None) -> StreamConfig:
    corpus(tmp_path, "jsonl", [30, 20, 40], words=20)
    return stream(tmp_path, "jsonl", tokenizer, epochs=1)


def test_a_loader_is_not_ready_before_its_first_batch_nor_at_the_end(config: StreamConfig) -> None:
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    assert not loader.ready()
    said = []
    for _ in loader:
        said.append(loader.ready())  # noqa: PERF401 - it is asked for in between
    assert any(said), "rows of the message at hand"
    assert not said[-1]
    assert not loader.ready()


def test_interrupted_while_it_looks_a_loader_goes_on_with_the_very_next_row(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = take(InProcessLoader(config, 2, cache_dir=CACHE))
    loader = InProcessLoader(config, 2, workers=2, cache_dir=CACHE)
    found = take(loader, 5)

    def interrupted(self: Turns, batch: int) -> bool:
        for tap in self._reader._reader._taps:
            tap._messages.clear()  # as where a message was received and not yet noted
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Turns, "ready", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loader.ready()
    assert equal(found + take(loader), reference)
