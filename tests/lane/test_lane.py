"""A lane: its rows, and its state behind every one of them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.errors import BudgetError
from streamfeed.lane.lane import Lane
from streamfeed.lane.state import LaneState, Place
from tests.corpora import KINDS, texts_with_ids, write_corpus
from tests.lanes import EOS, SILENT, ahead_thread, lane_of, plan_of, rows_of, texts_of, tools_for

if TYPE_CHECKING:
    from streamfeed.config import Packing
    from streamfeed.plan.plan import Plan


def without_cursors(state: LaneState) -> LaneState:
    """The state with its cursors left out: a resumed reader may name the same place by another one."""
    sources = [replace(source, place=replace(source.place, seek=0, skip=0)) for source in state.sources]
    return replace(state, sources=tuple(sources))


def check_every_row(plan: Plan, lane: int, most: int | None) -> int:
    whole = list(rows_of(lane_of(plan, lane), most))
    for index, (_, _, state) in enumerate(whole):
        saved = LaneState.from_json(state.to_json())
        again = index + 1 - saved.rows  # rows of a packing window that was begun
        assert again == 0 or (again > 0 and plan.rules.packing != "concat")
        left = None if most is None else most - saved.rows
        rest = list(rows_of(lane_of(plan, lane, saved), left))[again:]
        assert [(row, chain) for row, chain, _ in rest] == [(row, chain) for row, chain, _ in whole[index + 1 :]]
        assert [without_cursors(one) for _, _, one in rest] == [
            without_cursors(one) for _, _, one in whole[index + 1 :]
        ]
    return len(whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epochs", [None, 2])
def test_a_lane_restarted_behind_any_row_goes_on_to_the_bit(kind: str, epochs: int | None, tmp_path: Path) -> None:
    write_corpus(kind, tmp_path, texts_with_ids(14, words=5), shards=2)
    plan = plan_of(tmp_path, kind=kind, lanes=2, shuffle_buffer=8, seq_len=24, epochs=epochs)
    assert all(check_every_row(plan, lane, None if epochs else 30) > 10 for lane in (0, 1))


PACKINGS = st.sampled_from([("concat", False), ("best_fit", False), ("none", False), ("none", True)])
TEXTS = st.lists(st.sampled_from(["a", "bb", "a longer text", "x" * 50, SILENT, "", None]), min_size=1, max_size=9)


@settings(max_examples=40)
@given(st.lists(TEXTS, min_size=1, max_size=3), PACKINGS, st.data())
def test_any_mixture_of_any_documents_in_any_packing_is_resumed_behind_any_row(
    corpora: list[list[str | None]], packing: tuple[Packing, bool], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", data.draw(st.integers(1, 4)))
        patch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", data.draw(st.integers(1, 3)))
        patch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
        patch.setattr("streamfeed.lane.single.GROUP_ROWS", data.draw(st.integers(1, 6)))
        patch.setattr("streamfeed.lane.single.ROWS_ALIKE", 2)
        folders = [Path(folder) / str(source) for source in range(len(corpora))]
        for source, texts in zip(folders, corpora, strict=True):
            write_corpus("jsonl", source, texts)
        lanes = data.draw(st.integers(1, 3))
        plan = plan_of(
            *folders,
            lanes=lanes,
            weights=[data.draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in folders],
            seq_len=data.draw(st.integers(2, 20)),
            shuffle_buffer=data.draw(st.integers(0, 12)),
            window_bytes=data.draw(st.sampled_from([1, 20, 1000])),
            epochs=data.draw(st.integers(1, 2)),
            packing=packing[0],
            group_by_length=packing[1],
        )
        for lane in range(lanes):
            check_every_row(plan, lane, None)


def test_the_rows_of_a_finite_lane_are_its_documents_one_behind_the_other(tmp_path: Path) -> None:
    texts = texts_with_ids(30)
    write_corpus("parquet", tmp_path, texts)
    lane = lane_of(plan_of(tmp_path, kind="parquet", epochs=1, shuffle_buffer=12))
    rows = [row for row, _, _ in rows_of(lane)]
    assert {len(row) for row in rows[:-1]} == {16}
    assert 0 < len(rows[-1]) <= 16
    tokens = [token for row in rows for token in row]
    assert sorted(texts_of(tokens)) == sorted(text for text in texts if text)
    assert tokens[-1] == EOS
    assert lane.next_block() is None


def test_a_reading_thread_changes_nothing(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, texts_with_ids(40), shards=2)
    plan = plan_of(tmp_path, tmp_path, shuffle_buffer=8, epochs=2, weights=[1, 2])
    with ahead_thread() as thread:
        lane = Lane(plan, 0, LaneState.start(2, 0), replace(tools_for(plan), thread=thread))
        lane.start()
        ahead = list(rows_of(lane))
    assert ahead == list(rows_of(lane_of(plan)))


def test_a_lane_that_has_ended_gives_no_row_and_keeps_its_state(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, ["abc", None])
    plan = plan_of(tmp_path, epochs=1, shuffle_buffer=1)
    lane = lane_of(plan)
    assert len(list(rows_of(lane))) == 1
    state = LaneState.from_json(lane.end_state().to_json())
    assert (state.rows, state.ended, state.tally.records, state.tally.null) == (1, True, 2, 1)
    again = lane_of(plan, state=state)
    assert again.next_block() is None
    assert again.end_state() == state


def test_a_later_pass_of_a_finite_stream_is_its_later_epochs(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, texts_with_ids(20))
    both = [row for row, _, _ in rows_of(lane_of(plan_of(tmp_path, epochs=2, seq_len=2)))]
    one = plan_of(tmp_path, epochs=1, seq_len=2)
    parts = [[t for row, _, _ in rows_of(lane_of(one, first_epoch=epoch)) for t in row] for epoch in (0, 1)]
    assert parts[0] + parts[1] == [token for row in both for token in row]
    assert parts[0] != parts[1]


def test_the_chain_of_a_row_depends_on_every_row_before_it(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path / "a", ["abcd", "efgh", "ijkl"])
    write_corpus("jsonl", tmp_path / "b", ["abcX", "efgh", "ijkl"])
    chains = [
        [chain for _, chain, _ in rows_of(lane_of(plan_of(tmp_path / name, epochs=1, seq_len=5, shuffle_buffer=0)))]
        for name in ("a", "b")
    ]
    assert all(a != b for a, b in zip(*chains, strict=True))


def test_more_bad_records_than_the_budget_are_an_error_that_names_the_lane(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n' + "no json\n" * 5 + '{"text": "good"}\n' * 20)
    allowed = lane_of(plan_of(tmp_path, on_error="skip", skip_budget=5, epochs=1))
    assert len(texts_of([token for row, _, _ in rows_of(allowed) for token in row])) == 21
    assert allowed.end_state().tally.skipped == 5
    with pytest.raises(BudgetError, match=r"lane 0 passed over 5 bad records.*skip_budget=4"):
        list(rows_of(lane_of(plan_of(tmp_path, on_error="skip", skip_budget=4, epochs=1))))


def test_a_state_that_has_not_begun_is_the_start(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, ["abc"])
    plan = plan_of(tmp_path, epochs=1)
    start = LaneState.start(1, 0)
    assert start.sources[0].place == Place()
    assert list(rows_of(lane_of(plan, state=LaneState.from_json(start.to_json())))) == list(rows_of(lane_of(plan)))
