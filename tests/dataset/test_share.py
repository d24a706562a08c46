"""Shares: the formulas against counting rows one by one."""

from __future__ import annotations

import itertools
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.dataset.share import Share
from streamfeed.errors import ConfigError

TOPOLOGIES = list(itertools.product(range(1, 13), range(1, 13)))
"""All lanes and ranks up to 12."""


@pytest.mark.parametrize("lanes", range(1, 13))
def test_ranks_share_the_rows_out_and_every_row_is_the_lanes_that_the_order_says(lanes: int) -> None:
    for world in range(1, 13):
        rows = 4 * lanes * world
        owners: dict[int, int] = {}
        for rank in range(world):
            share = Share(lanes, rank, world)
            for t in range(rows // world):
                g = t * world + rank
                owners[g] = rank
                assert share.lane_at(t % share.slots) == g % lanes
                assert share.lane_row(t) == g // lanes
        assert sorted(owners) == list(range(rows))


@pytest.mark.parametrize(("lanes", "world"), TOPOLOGIES)
def test_a_rank_hosts_each_lane_that_it_needs_once_and_takes_every_stepth_row(lanes: int, world: int) -> None:
    for rank in range(world):
        share = Share(lanes, rank, world)
        hosted = [share.lane_at(slot) for slot in range(share.slots)]
        assert sorted(hosted) == [v for v in range(lanes) if v % gcd(lanes, world) == rank % gcd(lanes, world)]
        for slot in range(share.slots):
            own = [share.lane_row(slot + turn * share.slots) for turn in range(5)]
            assert own == list(range(own[0], own[0] + 5 * share.step, share.step))


@pytest.mark.parametrize(("lanes", "world"), TOPOLOGIES)
def test_a_rank_continues_behind_the_rows_that_were_handed_out(lanes: int, world: int) -> None:
    for rows in range(3 * lanes + 2):
        firsts = [Share(lanes, rank, world).first(rows) for rank in range(world)]
        for rank, first in enumerate(firsts):
            assert first == sum(1 for g in range(rows) if g % world == rank)
        assert min(first * world + rank for rank, first in enumerate(firsts)) == rows


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 70), st.data())
def test_workers_share_the_slots_out(lanes: int, world: int, workers: int, data: st.DataObject) -> None:
    share = Share(lanes, data.draw(st.integers(0, world - 1)), world)
    used = min(workers, share.slots)
    slots = [slot for worker in range(used) for slot in share.worker_slots(worker, used)]
    assert sorted(slots) == list(range(share.slots))
    assert all(len(share.worker_slots(worker, used)) for worker in range(used))


@pytest.mark.parametrize(("lanes", "world"), TOPOLOGIES)
def test_advice_is_given_where_lanes_are_computed_more_than_once_and_following_it_helps(lanes: int, world: int) -> None:
    share = Share(lanes, 0, world)
    advice = share.advice()
    assert bool(advice) == (lanes % world != 0)
    if advice:
        ranks, better = (int("".join(filter(str.isdigit, part))) for part in advice.split(" use ")[1].split(" ranks"))
        assert not Share(lanes, 0, ranks).advice()
        assert not Share(better, 0, world).advice()


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_outside_of_its_world_is_refused(rank: int, world: int) -> None:
    with pytest.raises(ConfigError, match=f"rank {rank} of {world}"):
        Share(4, rank, world)
