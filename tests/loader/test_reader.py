"""Batches out of messages: the same however the messages are cut, each of which is given back once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamfeed.dataset.batch import BatchArrays
from streamfeed.dataset.share import Share
from streamfeed.errors import WorkerError
from streamfeed.loader.reader import RankReader
from tests.loader.channels import SEQ_LEN, FakeChannel, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

PAD = 99
Arrays = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def fill(reader: RankReader, count: int) -> tuple[Arrays, tuple[int, int]] | None:
    arrays = tuple(np.full((count, SEQ_LEN), -5, dtype=np.int64) for _ in range(3))
    filled = reader.fill(BatchArrays(*arrays), PAD)
    if filled is None:
        return None
    lengths = filled.lengths
    return (arrays[0], arrays[1], arrays[2]), (int(lengths.sum()), int((lengths == 0).sum()))


def batches(reader: RankReader, count: int) -> list[tuple[Arrays, tuple[int, int]]]:
    found = []
    while (batch := fill(reader, count)) is not None:
        found.append(batch)
    return found


def workers_rows(slots: int, workers: int, rounds: int, lengths: Sequence[int], first: int) -> list[Rows]:
    """Rows ``first`` to ``rounds * slots`` of a rank, by worker; row ``t`` has ``lengths[t]`` tokens."""
    numbers = range(first, rounds * slots)
    mine = [[t for t in numbers if t % slots % workers == worker] for worker in range(workers)]
    return [Rows.of(some, [lengths[t] for t in some]) for some in mine]


def expected(rows: list[Rows], slots: int, first: int, count: int) -> list[list[int]]:
    """Ids of every batch, row by row, padded: drawn by hand from uncut rows."""
    drawn, t, found = [0] * len(rows), first, []
    total = sum(len(some.ids) for some in rows)
    while sum(drawn) < total:
        batch = []
        for _ in range(count):
            worker = t % slots % len(rows)
            row = [PAD] * SEQ_LEN
            if drawn[worker] < len(rows[worker].ids):
                length = int(rows[worker].lengths[drawn[worker]])
                row[:length] = rows[worker].ids[drawn[worker]][:length].tolist()
                drawn[worker] += 1
            batch += row
            t += 1
        found.append(batch)
    return found


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, int, list[Rows], list[list[int]]]:
    slots = draw(st.integers(1, 6))
    workers = draw(st.integers(1, slots))
    rounds = draw(st.integers(1, 6))
    first = draw(st.integers(0, slots - 1))
    sizes = st.integers(1, SEQ_LEN)
    lengths = [draw(sizes) for _ in range(rounds * slots)]
    rows = workers_rows(slots, workers, rounds, lengths, first)
    cuts = [draw(st.lists(st.integers(0, len(some.ids)), max_size=4)) for some in rows]
    return slots, workers, first, rows, cuts


@given(streams(), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_messages_of_any_cut_give_the_same_batches(
    stream: tuple[int, int, int, list[Rows], list[list[int]]], count: int
) -> None:
    slots, _, first, rows, cuts = stream
    share = Share(slots, 0, 1)
    whole = batches(RankReader(share, [FakeChannel.cut(some, []) for some in rows], first), count)
    channels = [FakeChannel.cut(some, where) for some, where in zip(rows, cuts, strict=True)]
    found = batches(RankReader(share, channels, first), count)
    assert [batch[0].reshape(-1).tolist() for batch, _ in found] == expected(rows, slots, first, count)
    assert len(found) == len(whole)
    for (arrays, filled), (whole_arrays, whole_filled) in zip(found, whole, strict=True):
        assert filled == whole_filled
        assert all(np.array_equal(a, b) for a, b in zip(arrays, whole_arrays, strict=True))
    assert sum(tokens for _, (tokens, _) in found) == sum(int(some.lengths.sum()) for some in rows)
    for channel in channels:
        assert channel.received == channel.released == len(channel.messages) + 1


@given(streams(), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_positions_restart_and_labels_are_ignored_where_documents_start(
    stream: tuple[int, int, int, list[Rows], list[list[int]]], count: int
) -> None:
    slots, _, first, rows, cuts = stream
    starts = {int(ids[0]) // 10: some for one in rows for ids, some in zip(one.ids, one.starts, strict=True)}
    channels = [FakeChannel.cut(some, where) for some, where in zip(rows, cuts, strict=True)]
    for (ids, labels, positions), _ in batches(RankReader(Share(slots, 0, 1), channels, first), count):
        for row in range(count):
            if ids[row, 0] == PAD and labels[row, 0] == -100 and (ids[row] == PAD).all():
                continue
            begins = sorted({0, *starts[int(ids[row, 0]) // 10]})
            length = next((column for column in range(SEQ_LEN) if ids[row, column] == PAD), SEQ_LEN)
            for column in range(length):
                piece = max(begin for begin in begins if begin <= column)
                assert positions[row, column] == column - piece
                assert labels[row, column] == (-100 if column == piece else ids[row, column])
            assert (labels[row, length:] == -100).all()


def test_a_batch_of_empty_rows_with_rows_behind_it_is_handed_out() -> None:
    rows = Rows.of([3, 4, 5, 6, 7], [0, SEQ_LEN, 2, SEQ_LEN, 1])
    channel = FakeChannel.cut(rows, [1, 3])
    found = batches(RankReader(Share(4, 0, 1), [channel], 3), 1)
    assert [filled for _, filled in found] == [(0, 1), (SEQ_LEN, 0), (2, 0), (SEQ_LEN, 0), (1, 0)]
    assert [int(arrays[0][0, 0]) for arrays, _ in found] == [PAD, 40, 50, 60, 70]
    assert channel.released == channel.received == 4


def test_looking_for_the_end_waits_for_every_worker() -> None:
    """The last batch is empty for one worker and not for the other: it is handed out, and only then the pass ends."""
    one, two = Rows.of([0, 2], [SEQ_LEN, 0]), Rows.of([1, 3], [SEQ_LEN, 4])
    channels = [FakeChannel.cut(one, [1]), FakeChannel.cut(two, [1])]
    found = batches(RankReader(Share(2, 0, 1), channels, 0), 1)
    assert [filled for _, filled in found] == [(SEQ_LEN, 0), (SEQ_LEN, 0), (0, 1), (4, 0)]


def test_trailing_empty_rows_are_no_batch() -> None:
    channel = FakeChannel.cut(Rows.of([0, 1, 2, 3], [SEQ_LEN, 1, 0, 0]), [2])
    reader = RankReader(Share(2, 0, 1), [channel], 0)
    assert len(batches(reader, 2)) == 1
    assert fill(reader, 2) is None
    assert reader.states() == (b"end",)


def test_the_states_at_the_end_are_those_behind_all_that_was_read_also_with_empty_rows_undrawn() -> None:
    channels = [
        FakeChannel.cut(Rows.of([0, 2], [SEQ_LEN, 0]), []),
        FakeChannel.cut(Rows.of([1, 3], [SEQ_LEN, 0]), []),
    ]
    reader = RankReader(Share(2, 0, 1), channels, 0)
    assert len(batches(reader, 1)) == 2
    assert reader.states() == (b"end", b"end")


def test_states_are_those_in_front_of_the_message_that_holds_the_last_row() -> None:
    channel = FakeChannel.cut(Rows.of(range(6), [SEQ_LEN] * 6), [1, 2, 4])
    reader = RankReader(Share(1, 0, 1), [channel], 0)
    assert reader.states() == (b"{}",)
    seen = []
    for _ in range(6):
        fill(reader, 1)
        seen.append(reader.states())
    assert seen == [(b"0",), (b"1",), (b"2",), (b"2",), (b"3",), (b"3",)]


def test_a_failure_comes_behind_the_batches_in_front_of_it() -> None:
    channel = FakeChannel.cut(Rows.of(range(5), [SEQ_LEN] * 5), [3], WorkerError("gone"))
    reader = RankReader(Share(1, 0, 1), [channel], 0)
    assert fill(reader, 2) is not None
    assert fill(reader, 2) is not None
    with pytest.raises(WorkerError, match="gone"):
        fill(reader, 2)


@given(streams(), st.integers(1, 5), st.data())
@settings(max_examples=150, deadline=None)
def test_batches_known_to_exist_do_and_all_that_have_arrived_are_known(
    stream: tuple[int, int, int, list[Rows], list[list[int]]], count: int, data: st.DataObject
) -> None:
    """Some rows are empty, as of lanes that have ended; messages arrive by chance, at last all of them."""
    slots, _, first, rows, cuts = stream
    for some in rows:
        some.lengths[:] = data.draw(st.lists(st.sampled_from([0, 2]), min_size=len(some.ids), max_size=len(some.ids)))
    numbers = [int(ids[0]) // 10 for some in rows for ids, length in zip(some.ids, some.lengths, strict=True) if length]
    true = -(-(max(numbers, default=first - 1) + 1 - first) // count)
    channels = [FakeChannel.cut(some, where) for some, where in zip(rows, cuts, strict=True)]
    reader = RankReader(Share(slots, 0, 1), channels, first)
    known = [reader.sure(count)]
    for handed in range(true):
        for channel in channels:
            channel.arrives = min(len(channel.messages), channel.received + data.draw(st.integers(0, 2)))
        if data.draw(st.booleans()):
            known.append(reader.sure(count))
            assert known[-1] <= true
        if handed == true - 1:
            break
        assert fill(reader, count) is not None
    for channel in channels:
        channel.arrives = len(channel.messages)
    assert reader.sure(count) == true or not true


def test_a_failure_that_is_met_in_looking_ahead_comes_behind_the_batches_in_front_of_it() -> None:
    channel = FakeChannel.cut(Rows.of(range(6), [SEQ_LEN] * 6), [3], WorkerError("gone"))
    channel.arrives = 3  # two messages and the failure
    reader = RankReader(Share(1, 0, 1), [channel], 0)
    assert reader.sure(2) == 3
    assert [fill(reader, 2) is not None for _ in range(3)] == [True] * 3
    with pytest.raises(WorkerError, match="gone"):
        fill(reader, 2)
