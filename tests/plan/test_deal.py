"""Dealing: every unit once an epoch, lanes nearly even, the same in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.formats.protocol import WHOLE
from streamfeed.formats.shape import Shape
from streamfeed.plan.deal import KEPT_EPOCHS, Dealer, deal
from streamfeed.plan.plan import SourceHands, SourcePlan
from streamfeed.plan.shards import ShardTable, Stride, UnitTable
from tests.lanes import rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=80)


def hands_of(sizes: list[int], lanes: int, seed: int = 0, source: int = 0, epoch: int = 0) -> list[list[int]]:
    dealer = Dealer(np.asarray(sizes, dtype=np.int64), lanes, seed, source, shuffled=True)
    return [dealer.hand(epoch, lane).tolist() for lane in range(lanes)]


@given(SIZES, st.integers(1, 48), st.integers(0, 9), st.integers(0, 9))
def test_every_unit_goes_to_one_lane_and_lanes_differ_by_the_largest_unit_at_most(
    sizes: list[int], lanes: int, seed: int, epoch: int
) -> None:
    hands = hands_of(sizes, lanes, seed, epoch=epoch)
    assert sorted(unit for hand in hands for unit in hand) == list(range(len(sizes)))
    totals = [sum(sizes[unit] for unit in hand) for hand in hands]
    assert max(totals) - min(totals) <= max(sizes)
    if len(sizes) >= lanes:
        assert min(map(len, hands)) >= 1


@given(SIZES, st.integers(1, 12), st.integers(0, 9), st.integers(0, 9))
def test_a_deal_is_the_same_in_every_process_and_in_any_order_of_asking(
    sizes: list[int], lanes: int, seed: int, epoch: int
) -> None:
    dealer = Dealer(np.asarray(sizes, dtype=np.int64), lanes, seed, 0, shuffled=True)
    for other in range(KEPT_EPOCHS + 3):
        dealer.hand(other, 0)
    backwards = [dealer.hand(epoch, lane).tolist() for lane in reversed(range(lanes))]
    assert backwards[::-1] == hands_of(sizes, lanes, seed, epoch=epoch)


def test_epochs_seeds_and_sources_have_deals_of_their_own() -> None:
    deals = [hands_of([10] * 50, 4, *key) for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert all(a != b for i, a in enumerate(deals) for b in deals[:i])


def test_no_lane_is_favoured_when_units_do_not_divide() -> None:
    totals = np.zeros(4)
    for epoch in range(400):
        totals += [len(hand) for hand in hands_of([10] * 5, 4, epoch=epoch)]
    assert totals.sum() == 2000
    assert totals.min() > 450


def test_without_shuffling_units_are_dealt_as_listed() -> None:
    dealer = Dealer(np.full(7, 10), 3, 0, 0, shuffled=False)
    assert [dealer.hand(5, lane).tolist() for lane in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert dealer.whole(np.arange(7), 5, 1).tolist() == list(range(7))


def test_ties_are_won_in_the_order_that_is_given() -> None:
    hands = deal(np.ones(3, dtype=np.int64), np.asarray([2, 0, 1]), np.asarray([1, 2, 0]))
    assert [hand.tolist() for hand in hands] == [[1], [2], [0]]


def units(rows: list[tuple[int, int, int, int, int, int]]) -> UnitTable:
    return UnitTable.build(rows)


@given(st.integers(1, 6), st.integers(1, 9))
def test_strides_cover_their_unit_and_their_firsts_cover_the_source(count: int, step: int) -> None:
    table = units([(shard, *WHOLE, 0, 1, 100) for shard in range(count)]).strided(step)
    assert len(table) == count * step
    found = {(int(table.shard[unit]), table.stride(unit)) for unit in range(len(table))}
    assert found == {(shard, Stride(phase, step)) for shard in range(count) for phase in range(step)}
    assert table.shard[table.first_strides()].tolist() == list(range(count))
    assert (table.nbytes == max(1, 100 // step)).all()


@pytest.mark.parametrize("shuffled", [0, 8])
def test_a_lane_that_reads_the_source_whole_reads_every_record_once(shuffled: int) -> None:
    shards = ShardTable.build(["a", "b"], [5, 6], ["tar", "jsonl"])
    plan = SourcePlan(
        shards, units([(0, *WHOLE, 0, 1, 5), (1, 0, 3, 0, 1, 3), (1, 3, 6, 0, 1, 3)]).strided(4), Shape(), 1
    )
    hands = SourceHands(plan, rules(lanes=12, shuffle_buffer=shuffled), 0)
    orders: set[tuple[int, ...]] = set()
    for epoch in range(6):
        hand: NDArray[np.int64] = hands.hand(epoch, 3, whole=True)
        found = [hands.unit(int(index), whole=True) for index in hand]
        assert sorted((unit.url, *unit.extent, *unit.stride) for unit in found) == [
            ("a", 0, -1, 0, 1),
            ("b", 0, 3, 0, 1),
            ("b", 3, 6, 0, 1),
        ]
        orders.add(tuple(hand.tolist()))
    assert (len(orders) > 1) == bool(shuffled)
    unit = hands.unit(5, whole=False)
    assert (unit.url, unit.size, unit.kind, unit.stride) == ("b", 6, "jsonl", Stride(1, 4))


def test_names_of_shards_keep_every_character() -> None:
    names = ["data/a b.jsonl", "データ/🙂.jsonl", "", "z.tar"]
    table = ShardTable.build(names, [1, 2, 3, 4], ["jsonl", "jsonl", "parquet", "tar"])
    assert [table.url(shard) for shard in range(len(table))] == names
    assert [table.kind(shard) for shard in range(len(table))] == ["jsonl", "jsonl", "parquet", "tar"]
