"""Windows: bounded in documents and bytes, pure functions of their place, never over an epoch's end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from streamfeed.errors import EmptyStreamError
from streamfeed.lane.state import Place
from streamfeed.plan.plan import LISTED_WINDOW_DOCUMENTS
from tests.corpora import KINDS, as_written, texts_with_ids, write_corpus, write_shard
from tests.lanes import plan_of, window_reader, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def corpus(folder: Path, texts: list[str | None], kind: str = "jsonl", shards: int = 1) -> Path:
    write_corpus(kind, folder, texts, shards=shards)
    return folder


def sizes(texts: Sequence[str]) -> list[int]:
    return [len(text.encode()) for text in texts]


def test_a_window_holds_its_share_of_the_shuffle_buffer(tmp_path: Path) -> None:
    plan = plan_of(corpus(tmp_path, texts_with_ids(50)), shuffle_buffer=8)
    assert [len(window.texts) for window in windows_of(plan)] == [8] * 6 + [2]


def test_the_first_windows_of_lanes_grow_from_lane_to_lane(tmp_path: Path) -> None:
    plan = plan_of(corpus(tmp_path, texts_with_ids(400), shards=4), lanes=4, shuffle_buffer=40)
    lengths = [[len(window.texts) for window in windows_of(plan, lane)] for lane in range(4)]
    assert [found[0] for found in lengths] == [3, 5, 8, 10]
    assert all(set(found[1:-1]) == {10} for found in lengths)


def test_only_the_first_window_of_an_epoch_is_smaller(tmp_path: Path) -> None:
    plan = plan_of(corpus(tmp_path, texts_with_ids(40), shards=2), lanes=2, shuffle_buffer=16)
    windows = windows_of(plan, 0, last_epoch=2)
    for epoch in range(2):
        assert [len(window.texts) for window in windows if window.begin.epoch == epoch] == [4, 8, 8]


def test_a_window_holds_no_more_bytes_than_allowed(tmp_path: Path) -> None:
    texts = texts_with_ids(60)
    windows = windows_of(plan_of(corpus(tmp_path, texts), shuffle_buffer=1000, window_bytes=200))
    assert len(windows) > 5
    assert all(sum(sizes(window.texts)) <= 200 for window in windows)
    assert [sorted(window.texts) for window in windows] == [sorted(part) for part in greedy(texts, 200)]


def greedy(texts: list[str | None], most: int) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for text in texts:
        assert text is not None
        if parts[-1] and sum(sizes(parts[-1])) + len(text.encode()) > most:
            parts.append([])
        parts[-1].append(text)
    return parts


@pytest.mark.parametrize("position", [0, 2, 5])
def test_a_document_larger_than_a_window_is_a_window_alone_and_counted(position: int, tmp_path: Path) -> None:
    texts: list[str | None] = ["a", "b", "c", "d", "e"]
    texts.insert(position, "x" * 100)
    windows = windows_of(plan_of(corpus(tmp_path, texts), shuffle_buffer=100, window_bytes=10))
    assert ["x" * 100] in [window.texts for window in windows]
    assert sum(window.tally.oversized for window in windows) == 1
    assert sorted(text for window in windows for text in window.texts) == sorted(text for text in texts if text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_never_reaches_over_an_epochs_end(kind: str, tmp_path: Path) -> None:
    texts = as_written(kind, texts_with_ids(21))
    windows = windows_of(plan_of(corpus(tmp_path, texts, kind, 3), kind=kind, shuffle_buffer=8), last_epoch=3)
    for epoch in range(3):
        found = [text for window in windows if window.begin.epoch == epoch for text in window.texts]
        assert sorted(found) == sorted(text for text in texts if text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [1, 3])
def test_windows_read_again_from_any_of_their_places_are_the_same(kind: str, lanes: int, tmp_path: Path) -> None:
    folder = corpus(tmp_path, texts_with_ids(50), kind, 2)
    plan = plan_of(folder, kind=kind, lanes=lanes, shuffle_buffer=12, window_bytes=300)
    for lane in range(lanes):
        windows = windows_of(plan, lane, last_epoch=2)
        for index, window in enumerate(windows):
            again = windows_of(plan, lane, window.begin, last_epoch=2)
            assert [(one.texts, one.digest) for one in again] == [(one.texts, one.digest) for one in windows[index:]]


def test_dropped_records_behind_the_last_document_are_counted_in_a_window_without_documents(tmp_path: Path) -> None:
    windows = windows_of(plan_of(corpus(tmp_path, ["a", "b", None, "", None]), shuffle_buffer=2))
    assert [window.texts == [] for window in windows] == [False, True]
    assert (windows[1].tally.null, windows[1].tally.empty, windows[1].tally.records) == (2, 1, 3)
    assert sum(window.tally.records for window in windows) == 5


def test_a_record_given_back_at_a_windows_end_is_counted_once(tmp_path: Path) -> None:
    windows = windows_of(plan_of(corpus(tmp_path, texts_with_ids(30)), shuffle_buffer=100, window_bytes=100))
    assert len(windows) > 5
    assert sum(window.tally.records for window in windows) == 30


def test_the_digest_is_of_the_texts_and_of_where_they_end(tmp_path: Path) -> None:
    def digest(name: str, texts: list[str | None]) -> str:
        return windows_of(plan_of(corpus(tmp_path / name, texts)))[0].digest

    same = digest("one", ["ab", "c", "de"])
    assert digest("two", ["ab", "c", "de"]) == same
    assert digest("three", ["ab", "c", "dE"]) != same
    assert digest("four", ["a", "bc", "de"]) != same
    assert digest("five", ["c", "ab", "de"]) != same


def test_shuffling_loses_and_invents_nothing_and_depends_on_seed_lane_epoch_and_window(tmp_path: Path) -> None:
    plan = plan_of(corpus(tmp_path, texts_with_ids(20)), shuffle_buffer=20)
    orders = set()
    for seed in (0, 1):
        for lane in (0, 1):
            reader = window_reader(replace(plan, rules=replace(plan.rules, seed=seed)), lane)
            for place in (Place(), Place(window=1), Place(epoch=1), Place(epoch=1, window=1)):
                order = reader.order(50, place)
                assert order is not None
                assert sorted(order.tolist()) == list(range(50))
                orders.add(tuple(order.tolist()))
    assert len(orders) == 16


def test_without_shuffling_windows_are_small_and_keep_the_listed_order(tmp_path: Path) -> None:
    texts = [str(i) for i in range(LISTED_WINDOW_DOCUMENTS + 10)]
    windows = windows_of(plan_of(corpus(tmp_path, [*texts], shards=3), shuffle_buffer=0))
    assert [text for window in windows for text in window.texts] == texts
    assert [len(window.texts) for window in windows] == [LISTED_WINDOW_DOCUMENTS, 10]


def test_a_repeating_source_without_a_document_is_an_error_that_says_what_was_dropped(tmp_path: Path) -> None:
    plan = plan_of(corpus(tmp_path, [None, "", None]))
    with pytest.raises(EmptyStreamError, match=r"part-00000\.jsonl.*3 records were read.*2 null, 1 empty"):
        windows_of(plan, last_epoch=None)
    assert [window.texts for window in windows_of(plan)] == [[]]


def test_a_lane_whose_share_holds_no_document_reads_the_source_whole_in_the_next_epoch(tmp_path: Path) -> None:
    shards: list[list[str | None]] = [["a", "b"], [None], [None, ""]]
    for index, texts in enumerate(shards):
        write_shard("jsonl", tmp_path / f"{index}.jsonl", texts)
    plan = plan_of(tmp_path, lanes=3, shuffle_buffer=30)
    seen = []
    for lane in range(3):
        windows = window_reader(plan, lane, last_epoch=None).windows(Place())
        first = next(window for window in windows if window.texts)
        later = next(window for window in windows if window.texts)
        assert sorted(first.texts) == sorted(later.texts) == ["a", "b"]
        seen.append((first.begin.epoch, first.begin.whole))
    assert sorted(seen) == [(0, False), (1, True), (1, True)]


def test_a_lane_that_drew_an_empty_shard_reads_its_own_share_again_afterwards(tmp_path: Path) -> None:
    shards: list[list[str | None]] = [["a"], ["b"], [None]]
    for index, texts in enumerate(shards):
        write_shard("jsonl", tmp_path / f"{index}.jsonl", texts)
    plan = plan_of(tmp_path, lanes=3, shuffle_buffer=30)
    for lane in range(3):
        windows = (window for window in window_reader(plan, lane, last_epoch=None).windows(Place()) if window.texts)
        some = [next(windows) for _ in range(30)]
        for one, later in itertools.pairwise(some):
            assert not (one.begin.whole and later.begin.whole) or later.begin.epoch - one.begin.epoch > 1
            assert sorted(one.texts) == ["a", "b"] if one.begin.whole else len(one.texts) == 1


def test_only_what_is_larger_than_the_setting_is_counted_as_oversized(tmp_path: Path) -> None:
    """A lane's first window is smaller than that, and so is every one of a listed order."""
    texts: list[str | None] = ["x" * 60] * 8
    first = plan_of(corpus(tmp_path / "a", texts, shards=4), lanes=4, shuffle_buffer=100, window_bytes=100)
    listed = plan_of(corpus(tmp_path / "b", ["x" * (3 << 20)] * 2), shuffle_buffer=0, window_bytes=64 << 20)
    for plan in (first, listed):
        assert sum(window.tally.oversized for window in windows_of(plan)) == 0
