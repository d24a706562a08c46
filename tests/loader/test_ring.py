"""Shared memory: the slots of a ring, and objects that all workers share."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.dataset.message import Layout
from streamfeed.formats.shape import Shape
from streamfeed.loader.ring import SLOTS, Ring, SharedObject
from streamfeed.plan.plan import Plan, Rules, SourcePlan
from streamfeed.plan.shards import ShardTable, UnitTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTEXT = multiprocessing.get_context("spawn")


@given(st.integers(1, 40), st.integers(2, 70), st.integers(0, 70), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_slots_of_a_ring_and_their_arrays_do_not_overlap(
    rows: int, seq_len: int, starts: int, flags: bool, values: bool
) -> None:
    layout = Layout(seq_len, starts, flags, values)
    slots = Ring.allocate(CONTEXT, rows, layout).buffers()
    assert len(slots) == SLOTS
    arrays: list[NDArray[Any]] = [array for slot in slots for array in (slot.ids, slot.lengths, slot.starts)]
    arrays += [slot.flags for slot in slots if slot.flags is not None]
    arrays += [slot.values for slot in slots if slot.values is not None]
    for number, array in enumerate(arrays):
        array[...] = number
    for number, array in enumerate(arrays):
        assert (array == number).all()
    for slot in slots:
        assert slot.ids.shape == (rows, seq_len)
        assert slot.lengths.shape == (rows,)
        assert len(slot.starts) == rows * starts
        assert (slot.flags is not None, slot.values is not None) == (flags, values)


def test_both_sides_of_a_ring_see_the_same_memory() -> None:
    ring = Ring.allocate(CONTEXT, 3, Layout(8, 5))
    one, other = ring.buffers()[-1], ring.buffers()[-1]
    one.ids[1] = 7
    assert (other.ids[1] == 7).all()


@given(st.lists(st.integers(0, 300), max_size=5))
@settings(max_examples=40, deadline=None)
def test_a_shared_object_comes_back_equal(sizes: list[int]) -> None:
    item: dict[str, Any] = {
        "name": "plan",
        "arrays": [np.arange(size, dtype=np.int64) for size in sizes],
        "bytes": b"\x00\x01",
    }
    found = SharedObject.put(CONTEXT, item).get()
    assert found.keys() == item.keys()
    assert found["bytes"] == item["bytes"]
    for found_array, array in zip(found["arrays"], item["arrays"], strict=True):
        assert np.array_equal(found_array, array)
        assert found_array.dtype == array.dtype


def test_the_arrays_of_a_shared_object_are_views_of_the_shared_memory() -> None:
    shared = SharedObject.put(CONTEXT, np.arange(1000))
    found = shared.get()
    memoryview(shared.memory).cast("B")[:8] = (41).to_bytes(8, "little")
    assert found[0] == 41


@pytest.mark.parametrize("shards", [200_000])
def test_a_plan_of_many_shards_is_shared_and_not_sent_to_every_worker(shards: int) -> None:
    urls = [f"s3://bucket/corpus/part-{shard:07}.jsonl.zst" for shard in range(shards)]
    table = ShardTable.build(urls, [1 << 20] * shards, ["jsonl.zst"] * shards)
    units = UnitTable.build([(shard, 0, -1, 0, 1, 1 << 20) for shard in range(shards)])
    rules = Rules(48, 2048, 0, 16384, 1 << 26, None, "raise", 0)
    plan = Plan([SourcePlan(table, units, Shape("text"), 1.0)], rules, {"lanes": 48})
    shared = SharedObject.put(CONTEXT, [plan] * 8)
    assert len(shared.pickled) < 1 << 20
    assert sum(shared.sizes) > 20 << 20
    found: list[Plan] = shared.get()
    assert found[7].sources[0].shards.url(shards - 1) == urls[-1]
    assert np.array_equal(found[7].sources[0].units.shard, units.shard)
