"""Votes: all ranks learn the same end of a pass, in time, whatever each knows of its own batches and when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.errors import RankError
from streamfeed.loader.votes import Votes
from tests.threads import ThreadRanks, on_ranks

if TYPE_CHECKING:
    from collections.abc import Callable


class Own:
    """A rank with ``end`` batches that sees up to ``reach`` batches ahead, by chance."""

    def __init__(self, end: int, reach: int, chance: random.Random) -> None:
        self.end, self.reach, self.chance = end, reach, chance
        self.taken = 0
        self.waited = 0

    def known(self, *, wait: bool) -> tuple[int, bool]:
        self.waited += wait
        least = self.taken + wait
        seen = max(least, self.taken + self.chance.randint(0, self.reach))
        return (self.end, True) if seen > self.end else (min(seen, self.end), False)


def take_all(ranks: ThreadRanks, own: Own) -> int:
    votes = Votes(ranks, own, 1)
    batch = 0
    while votes.exists(batch):
        own.taken = min(batch + 1, own.end)
        batch += 1
    assert not votes.exists(batch), "the end stays the end"
    return batch


@settings(max_examples=150)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=5), st.integers(0, 12), st.integers(0, 1000))
def test_all_ranks_take_as_many_batches_as_the_rank_with_the_most(ends: list[int], reach: int, seed: int) -> None:
    owns = [Own(end, reach, random.Random(seed + rank)) for rank, end in enumerate(ends)]
    assert on_ranks(len(ends), lambda ranks: take_all(ranks, owns[ranks.number])) == [max(ends)] * len(ends)


def test_who_sees_far_ahead_is_asked_seldom() -> None:
    asked: list[int] = [0, 0]

    def work(ranks: ThreadRanks) -> int:
        own = Own(1000, 40, random.Random(ranks.number))
        taken = take_all(ranks, own)
        asked[ranks.number] = ranks.asked
        return taken

    assert on_ranks(2, work) == [1000, 1000]
    assert asked[0] == asked[1] < 150


def test_a_question_is_put_before_its_answer_is_needed() -> None:
    def work(ranks: ThreadRanks) -> int:
        own = Own(500, 30, random.Random(ranks.number))
        own.known = lambda *, wait: _sees(own, 30, wait=wait)  # type: ignore[method-assign]
        assert take_all(ranks, own) == 500
        return own.waited

    assert max(on_ranks(3, work)) <= 3, "only the first question, and those at the end, are waited for"


def _sees(own: Own, ahead: int, *, wait: bool) -> tuple[int, bool]:
    own.waited += wait
    seen = own.taken + ahead
    return (own.end, True) if seen > own.end else (seen, False)


@pytest.mark.parametrize("leaves_at", [0, 1, 7, 30])
def test_a_rank_that_leaves_stops_all_others(leaves_at: int) -> None:
    def work(ranks: ThreadRanks) -> str:
        own = Own(60, 5, random.Random(ranks.number))
        votes = Votes(ranks, own, 1)
        for batch in range(60):
            if ranks.number == 1 and batch == leaves_at:
                Votes.leave(ranks)
                return "left"
            try:
                assert votes.exists(batch)
            except RankError as error:
                Votes.leave(ranks)
                return str(error)
            own.taken = batch + 1
        return "never heard of it"

    said = on_ranks(3, work)
    assert said[1] == "left"
    assert all("rank 1 failed, or left" in text for text in (said[0], said[2]))


def _unequal(batches: Callable[[int], int]) -> list[str]:
    def work(ranks: ThreadRanks) -> str:
        own = Own(40, 0, random.Random(ranks.number))
        votes = Votes(ranks, own, batches(ranks.number))
        try:
            while votes.exists(own.taken):
                own.taken += 1
        except RankError as error:
            return str(error)
        return ""

    return on_ranks(2, work)


def test_ranks_that_started_over_a_different_number_of_times_are_told() -> None:
    assert all("different numbers of batches" in said for said in _unequal(lambda rank: 1 + rank))
    assert _unequal(lambda rank: 1) == ["", ""]
