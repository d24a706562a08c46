"""Golden values: an upgrade of numpy, xxhash or of this package that changes the order of a stream fails here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.plan import order as order_module
from streamfeed.plan.order import BLOCK, KeyedOrders, keyed_bits, order_key, permutation
from tests.lanes import lane_of, plan_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from numpy.typing import NDArray


def test_keys_are_these() -> None:
    assert order_key() == 0x99AA06D3014798D86001C324468D497F
    assert order_key("units", 0, 0, 0) == 0x776D738EF394FC81ED7CEAEAB3B5DCFA
    assert order_key("window", 17, 2, 3, 4, 5) == 0x44BE57A046FE5EED2D7FD5073C4F2569


def test_bits_are_these() -> None:
    assert [f"{bits:016x}" for bits in keyed_bits(1, 4).tolist()] == [
        "4db6a27b756282df",
        "d944fa03babe0e2f",
        "27f872e577060d32",
        "07f697696a0482a2",
    ]


def test_permutations_are_these() -> None:
    assert permutation(1, 16).tolist() == [3, 5, 2, 9, 7, 10, 14, 0, 15, 8, 13, 12, 6, 11, 1, 4]
    assert permutation(order_key("units", 0, 0, 0), 10).tolist() == [4, 5, 2, 9, 3, 0, 8, 6, 7, 1]
    large = permutation((1 << 128) - 1, 100_000)
    assert xxhash.xxh3_64_hexdigest(large.tobytes()) == "7b9a729ba4e33d0a"


def test_a_whole_small_stream_is_this(tmp_path: Path) -> None:
    numbers = iter(range(60))
    for shard, count in enumerate((20, 7, 33)):
        lines = [f'{{"text": "document {next(numbers)} of the golden corpus"}}\n' for _ in range(count)]
        (tmp_path / f"{shard}.jsonl").write_text("".join(lines))
    plan = plan_of(tmp_path, lanes=3, shuffle_buffer=18, seq_len=32, seed=1234)
    found = [list(rows_of(lane_of(plan, lane), 100)) for lane in range(3)]
    firsts = [
        [xxhash.xxh3_64_hexdigest(np.asarray(row, dtype=np.int32).tobytes()) for row, _, _ in lane[:2]]
        for lane in found
    ]
    assert firsts == [
        ["0edb7d68cb5e132a", "74b58080a5c18acc"],
        ["402c1a3fc16662a8", "74c32935d53aeb43"],
        ["40c2b74a9b750da6", "99886b27825ce966"],
    ]
    assert [f"{lane[-1][1]:016x}" for lane in found] == ["d50c46c1899a387b", "298a007f7c9c454f", "e8811e120a68ee6c"]


@given(st.integers(0, (1 << 128) - 1), st.integers(0, 300))
def test_a_permutation_is_one(key: int, count: int) -> None:
    order = permutation(key, count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))


@given(st.integers(0, (1 << 128) - 1), st.integers(0, 50), st.integers(0, 50))
def test_a_longer_draw_begins_with_a_shorter_one(key: int, short: int, more: int) -> None:
    assert keyed_bits(key, short + more)[:short].tolist() == keyed_bits(key, short).tolist()


@given(st.lists(st.integers(1, 2 * BLOCK), min_size=1, max_size=5), st.integers(0, 3 * BLOCK))
def test_orders_of_consecutive_items_are_slices_of_one_sequence_of_bits(counts: list[int], first: int) -> None:
    blocks = (first + sum(counts)) // BLOCK + 1
    bits = np.concatenate([keyed_bits(order_key("rows", 3, block), BLOCK) for block in range(blocks)])
    orders = KeyedOrders("rows", 3)
    for count in counts:
        expected = np.argsort(bits[first : first + count], kind="stable")
        assert orders.order(first, count).tolist() == expected.tolist()
        first += count


def test_a_block_of_bits_is_drawn_once_however_many_orders_lie_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[int] = []

    def draw(key: int, count: int) -> NDArray[np.uint64]:
        draws.append(key)
        return keyed_bits(key, count)

    monkeypatch.setattr(order_module, "keyed_bits", draw)
    orders = KeyedOrders("rows", 3)
    for first in range(0, 3 * BLOCK, 100):
        orders.order(first, 100)
    assert draws == [order_key("rows", 3, block) for block in range(4)]


PARTS = st.lists(st.one_of(st.integers(), st.text(st.characters(exclude_categories=["C"]))), max_size=4)


@given(PARTS, PARTS)
def test_unlike_parts_have_unlike_keys(left: list[str | int], right: list[str | int]) -> None:
    assert (order_key(*left) == order_key(*right)) == (left == right)


def test_a_number_is_not_its_text_and_parts_do_not_run_together() -> None:
    keys = {
        order_key("1"),
        order_key(1),
        order_key("a", "b"),
        order_key("ab"),
        order_key("a", "b", ""),
        order_key("", "a", "b"),
    }
    assert len(keys) == 6
