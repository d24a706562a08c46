"""Splitting: how many lanes, and units that cover every record once."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Cursor, Extent, Piece
from streamfeed.formats.shape import Shape
from streamfeed.lane.records import UnitRecords
from streamfeed.plan.plan import SourceHands, SourcePlan
from streamfeed.plan.shards import ShardTable
from streamfeed.plan.split import LADDER, PIECE_BYTES, Split, split_sources
from streamfeed.storage.store import Store
from tests.corpora import FIELDS, KINDS, SEEKABLE, id_of, kind_of_reader, texts_with_ids, write_shard
from tests.lanes import rules, splitter, table

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20


def shards(*sizes: int) -> ShardTable:
    return ShardTable.build([f"{i:05}" for i in range(len(sizes))], sizes, ["jsonl"] * len(sizes))


class Counting:
    """A splitter that counts what it is asked; ``whole`` shards cannot be entered in the middle."""

    def __init__(self, of: ShardTable, *, whole: bool = False) -> None:
        self._of = of
        self._whole = whole
        self.asked: list[int] = []

    def __call__(self, shard: int, max_bytes: int) -> list[Piece] | None:
        self.asked.append(shard)
        if self._whole:
            return None
        size = int(self._of.sizes[shard])
        count = -(-size // max_bytes)
        bounds = [size * i // count for i in range(count + 1)]
        return [Piece(Extent(bounds[i], bounds[i + 1]), bounds[i + 1] - bounds[i]) for i in range(count)]


def lanes_of(*sizes: int, finite: bool = False, whole: bool = False) -> int:
    one = shards(*sizes)
    return split_sources([one], [Counting(one, whole=whole)], "auto", finite=finite).lanes


def test_one_small_file_is_one_lane_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = shards(3 * MB)
    split = split_sources([one], [Counting(one)], "auto", finite=False)
    assert (split.lanes, len(split.units[0]), split.units[0].extent(0)) == (1, 1, WHOLE)
    assert not caplog.records


@pytest.mark.parametrize(
    ("count", "lanes"),
    [(1, 1), (2, 2), (5, 4), (7, 6), (11, 8), (13, 12), (16, 16), (20, 16), (30, 24), (47, 24), (48, 48), (5000, 48)],
)
def test_lanes_are_the_largest_step_of_the_ladder_that_has_a_unit_for_each(count: int, lanes: int) -> None:
    assert lanes_of(*[MB] * count) == lanes
    assert lanes in LADDER


@pytest.mark.parametrize(("count", "lanes"), [(7, 1), (8, 1), (16, 2), (63, 6), (64, 8), (383, 24), (384, 48)])
def test_a_finite_pass_has_eight_units_for_each_lane(count: int, lanes: int) -> None:
    assert lanes_of(*[MB] * count, finite=True) == lanes


@pytest.mark.parametrize(
    ("sizes", "lanes"),
    [([PIECE_BYTES * 2], 2), ([PIECE_BYTES * 3 + 1], 4), ([PIECE_BYTES * 100], 48), ([MB, PIECE_BYTES * 7 + 5], 8)],
)
def test_large_shards_are_split_until_there_are_lanes_enough(sizes: list[int], lanes: int) -> None:
    assert lanes_of(*sizes) == lanes
    assert lanes_of(*sizes, whole=True) == len(sizes), "what cannot be split is a unit"


def test_footers_are_not_read_when_there_are_shards_enough() -> None:
    many = shards(*[PIECE_BYTES * 2] * 48)
    counting = Counting(many)
    split_sources([many], [counting], "auto", finite=False)
    split_sources([many], [counting], 48, finite=False)
    assert not counting.asked
    split_sources([many], [counting], "auto", finite=True)
    assert sorted(set(counting.asked)) == list(range(48))


def test_shards_that_are_small_enough_are_not_asked_either() -> None:
    few = shards(MB, PIECE_BYTES * 2, MB)
    counting = Counting(few)
    split_sources([few], [counting], "auto", finite=False)
    assert set(counting.asked) == {1}


def test_the_source_with_the_most_bytes_decides_and_the_others_have_a_unit_for_every_lane() -> None:
    large, small = shards(*[MB] * 50), shards(10)
    split = split_sources([small, large], [Counting(small), Counting(large)], "auto", finite=False)
    assert split.lanes == 48
    assert len(split.units[0]) == 48
    assert len(split.units[1]) == 50


def test_an_explicit_number_is_kept_by_splitting_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    one = shards(100 * MB)
    split = split_sources([one], [Counting(one)], 40, finite=False)
    assert (split.lanes, len(split.units[0])) == (40, 40)
    assert set(split.units[0].step.tolist()) == {1}
    assert not caplog.records


def test_an_explicit_number_is_kept_by_strides_in_the_last_resort_and_says_what_that_costs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    two = shards(60 * MB, 40 * MB)
    split = split_sources([two], [Counting(two, whole=True)], 7, finite=False)
    assert (split.lanes, len(split.units[0])) == (7, 8)
    assert set(split.units[0].step.tolist()) == {4}
    (record,) = caplog.records
    message = record.getMessage()
    assert record.levelno == logging.WARNING
    assert "00000 and 1 more shards are too few for 7 lanes" in message
    assert "every shard is read 4 times (314.6 MB more an epoch)" in message
    assert "use fewer lanes, or more and smaller shards" in message


def test_strides_of_a_tiny_source_cost_nothing_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tiny = shards(5000)
    assert len(split_sources([tiny], [Counting(tiny, whole=True)], 48, finite=False).units[0]) == 48
    assert not caplog.records


def ids_read(of: ShardTable, split: Split, lanes: int, kind: str) -> Counter[int]:
    """Read what every lane is dealt in epoch 3, and return how often each record came."""
    plan = SourcePlan(of, split.units[0], Shape(FIELDS[kind]), 1.0)
    hands = SourceHands(plan, rules(lanes=lanes), 0)
    reader = make_format(kind_of_reader(kind), Shape(FIELDS[kind]))
    found: Counter[int] = Counter()
    for lane in range(lanes):
        for index in hands.hand(3, lane, whole=False):
            unit = hands.unit(int(index), whole=False)
            records = UnitRecords(unit, reader, Store(), Cursor(), 0)
            while records.fill():
                mine = records.record % unit.stride.step == unit.stride.phase
                value = records.take()
                if mine:
                    assert isinstance(value, str | memoryview)
                    found[id_of(str(value, "utf-8") if isinstance(value, memoryview) else value)] += 1
    return found


COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any)


@pytest.mark.parametrize("kind", KINDS)
@given(counts=COUNTS, lanes=st.integers(1, 9), least=st.sampled_from([1, 400, 1 << 16]))
def test_every_record_is_in_one_lane_once_for_any_shards_and_lanes(
    kind: str, counts: list[int], lanes: int, least: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("split")
    first = 0
    for index, count in enumerate(counts):
        write_shard(kind, folder / f"{index}.{kind}", texts_with_ids(count, first=first), first=first)
        first += count
    of = table(folder, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.plan.split.LEAST_PIECE_BYTES", least)
        split = split_sources([of], [splitter(of, FIELDS[kind])], lanes, finite=True)
    assert split.lanes == lanes
    assert len(split.units[0]) >= lanes
    assert ids_read(of, split, lanes, kind) == Counter(range(first))


@pytest.mark.parametrize("kind", SEEKABLE)
def test_pieces_of_a_seekable_shard_are_smaller_than_the_shard(kind: str, tmp_path: Path) -> None:
    write_shard(kind, tmp_path / f"a.{kind}", texts_with_ids(2000), parts=8)
    of = table(tmp_path, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.plan.split.LEAST_PIECE_BYTES", 1000)
        split = split_sources([of], [splitter(of, FIELDS[kind])], 4, finite=False)
    assert len(split.units[0]) >= 4
    assert set(split.units[0].step.tolist()) == {1}
    assert split.units[0].nbytes.max() < 0.6 * of.sizes[0]
    assert ids_read(of, split, 4, kind) == Counter(range(2000))
