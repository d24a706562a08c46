"""A sample a row: nothing lost, and grouping that only puts rows of about one length together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.lane.single import GROUP_ROWS, ROWS_ALIKE, GroupPacker, SinglePacker
from tests.lane.test_best_fit import SPAN, run_of
from tests.lanes import block_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.lane.pack import Packed

LENGTHS = st.lists(st.integers(0, 30), max_size=60)


def packed(
    packer: SinglePacker | GroupPacker, lengths: Sequence[int], cuts: Sequence[int] = ()
) -> tuple[list[Packed], list[list[int]]]:
    """Return the parts, and all rows without what pads them."""
    bounds = sorted({0, len(lengths), *(cut % (len(lengths) + 1) for cut in cuts)})
    parts = [part for a, b in itertools.pairwise(bounds) for part in packer.feed(run_of(lengths[a:b], first=a))]
    last = packer.flush()
    parts += [] if last is None else [last]
    return parts, [row for part in parts for row in block_rows(part)]


def pieces(lengths: Sequence[int], seq_len: int) -> list[list[int]]:
    """Every document, cut into pieces of ``seq_len``, in order."""
    documents = [list(range(SPAN * number, SPAN * number + length)) for number, length in enumerate(lengths)]
    return [one[at : at + seq_len] for one in documents for at in range(0, len(one), seq_len)]


@given(LENGTHS, st.integers(2, 9), st.lists(st.integers(0, 60), max_size=6))
def test_a_row_is_a_sample_and_longer_ones_are_several(lengths: list[int], seq_len: int, cuts: list[int]) -> None:
    parts, rows = packed(SinglePacker(seq_len), lengths, cuts)
    assert rows == pieces(lengths, seq_len)
    for part in parts:
        assert part.ends is not None
        assert part.lengths is not None
        assert part.ends.tolist() == np.cumsum(part.lengths).tolist()


@given(LENGTHS, st.integers(2, 9), st.lists(st.integers(0, 60), max_size=6), st.integers(0, 5))
def test_groups_hold_the_same_rows_in_another_order_whatever_the_runs(
    lengths: list[int], seq_len: int, cuts: list[int], begun: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.lane.single.GROUP_ROWS", 8)
        patch.setattr("streamfeed.lane.single.ROWS_ALIKE", 3)
        _, rows = packed(GroupPacker(seq_len, 7, begun), lengths, cuts)
        _, whole = packed(GroupPacker(seq_len, 7, begun), lengths)
    assert rows == whole
    expected = pieces(lengths, seq_len)
    for at in range(0, len(expected), 8):
        assert sorted(rows[at : at + 8]) == sorted(expected[at : at + 8])


def test_rows_that_follow_each_other_have_about_the_same_length_in_all_lanes_at_once() -> None:
    draw = np.random.default_rng(0)
    lanes = []
    for _ in range(4):
        lengths = draw.integers(1, 500, 2 * GROUP_ROWS).tolist()
        lanes.append([len(row) for row in packed(GroupPacker(512, 7, 0), lengths)[1]])
    rounds = np.asarray(lanes).T.reshape(-1, ROWS_ALIKE * 4)
    assert np.ptp(rounds, axis=1).mean() < 60  # of 500, were they not grouped
    means = rounds.mean(axis=1)
    assert np.abs(np.diff(means)).mean() > 80  # short and long turn about: no drift


def test_the_groups_of_a_small_stream_are_these() -> None:
    """Golden values: raise ORDER_VERSION where they change."""
    lengths = [(7 * i * i + 3 * i) % 50 + 1 for i in range(2 * GROUP_ROWS)]
    parts, _ = packed(GroupPacker(64, 7, 0), lengths)
    ids = np.asarray([token for part in parts for row in block_rows(part) for token in row], dtype=np.int32)
    assert xxhash.xxh3_64_hexdigest(ids.tobytes()) == "9c7a042adda65ea6"
