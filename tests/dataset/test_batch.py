"""Batches: labels and positions against a slow reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.dataset.batch import IGNORED, BatchArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAD = 99


@dataclass
class Case:
    """Rows of at most ``seq_len`` tokens, and in each the columns where documents start."""

    seq_len: int
    rows: list[list[int]]
    starts: list[list[int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    seq_len = draw(st.integers(2, 9))
    rows = draw(st.lists(st.lists(st.integers(0, 120), max_size=seq_len), min_size=1, max_size=6))
    starts = [sorted(draw(st.sets(st.integers(0, len(row) - 1)))) if row else [] for row in rows]
    return Case(seq_len, rows, starts)


def finished(case: Case, groups: int = 1) -> BatchArrays:
    shape = (len(case.rows), case.seq_len)
    arrays = BatchArrays(*(np.full(shape, 12345, dtype=np.int64) for _ in range(3)))
    for index, row in enumerate(case.rows):
        padded: NDArray[np.int32] = np.full((1, case.seq_len), 777, dtype=np.int32)
        padded[0, : len(row)] = row
        arrays.put(slice(index, index + 1), padded)
    flat = [row * case.seq_len + column for row, columns in enumerate(case.starts) for column in columns]
    parts = [np.asarray(flat[group::groups], dtype=np.int64) for group in reversed(range(groups))]
    arrays.finish(np.asarray([len(row) for row in case.rows], dtype=np.int32), parts, PAD)
    return arrays


@pytest.mark.parametrize("few_tokens", [0, 4, 1000])
@given(case=cases(), groups=st.integers(1, 3))
def test_a_piece_begins_without_a_label_and_at_position_0_and_padding_has_no_label(
    few_tokens: int, case: Case, groups: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.dataset.batch.FEW_TOKENS", few_tokens)  # each way to count, and both
        arrays = finished(case, groups)
    for index, (row, columns) in enumerate(zip(case.rows, case.starts, strict=True)):
        padding = case.seq_len - len(row)
        assert arrays.input_ids[index].tolist() == row + [PAD] * padding
        labels, positions, position = [], [], 0
        for column, token in enumerate(row):
            position = 0 if column == 0 or column in columns else position + 1
            positions.append(position)
            labels.append(IGNORED if position == 0 else token)
        assert arrays.labels[index].tolist() == labels + [IGNORED] * padding
        assert arrays.position_ids[index].tolist() == positions + list(range(padding))


def test_a_token_that_looks_like_the_pad_keeps_its_label() -> None:
    arrays = finished(Case(4, [[1, PAD, PAD]], [[0]]))
    assert arrays.labels.tolist() == [[IGNORED, PAD, PAD, IGNORED]]


def test_rows_may_be_put_at_any_places() -> None:
    arrays = BatchArrays(*(np.zeros((3, 2), dtype=np.int64) for _ in range(3)))
    rows = np.asarray([[1, 2], [3, 4]], dtype=np.int32)
    arrays.put(np.asarray([2, 0]), rows)
    arrays.put(slice(1, 2), rows[:1])
    assert arrays.input_ids.tolist() == [[3, 4], [1, 2], [1, 2]]
