"""Windows of a part of the records: as if the others were not there, however the texts lie in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamfeed import HoldOut
from streamfeed.formats.shape import Shape
from streamfeed.lane.hold_out import Sieve
from tests.corpora import KINDS, as_written, texts_with_ids, write_corpus
from tests.lanes import plan_of, windows_of

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.lane.windows import Window
    from streamfeed.plan.plan import Plan

RULE = HoldOut(0.3)


def held(plan: Plan, part: str, rule: HoldOut = RULE) -> Plan:
    """The plan that reads one part."""
    return replace(plan, rules=replace(plan.rules, hold_out=HoldOut(rule.share, rule.by, rule.seed, part)))  # type: ignore[arg-type]


def is_held(text: str | None) -> bool:
    return xxhash.xxh3_64_intdigest((text or "").encode()) < RULE.limit


def shown(windows: list[Window]) -> list[tuple[list[str], str]]:
    return [(list(window.texts), window.digest) for window in windows if window.texts]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", [{"shuffle_buffer": 9}, {"shuffle_buffer": 1000, "window_bytes": 300}], ids=str)
@pytest.mark.parametrize("part", ["training", "held_out"])
def test_windows_are_those_of_a_corpus_without_the_other_part(
    part: str, limits: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    texts = as_written(kind, texts_with_ids(120))
    mine = [text for text in texts if is_held(text) is (part == "held_out")]
    write_corpus(kind, tmp_path / "all", texts, shards=1)
    write_corpus(kind, tmp_path / "mine", mine, shards=1)
    windows = windows_of(held(plan_of(tmp_path / "all", kind=kind, **limits), part), last_epoch=2)
    assert shown(windows) == shown(windows_of(plan_of(tmp_path / "mine", kind=kind, **limits), last_epoch=2))
    assert sum(window.tally.records for window in windows) == 240
    assert sum(window.tally.held_out for window in windows) == 2 * (120 - len(mine))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [1, 3])
def test_windows_read_again_from_any_of_their_places_are_the_same(kind: str, lanes: int, tmp_path: Path) -> None:
    write_corpus(kind, tmp_path, texts_with_ids(80), shards=2)
    plan = held(plan_of(tmp_path, kind=kind, lanes=lanes, shuffle_buffer=12, window_bytes=300), "training")
    for lane in range(lanes):
        windows = windows_of(plan, lane, last_epoch=2)
        for index, window in enumerate(windows):
            again = windows_of(plan, lane, window.begin, last_epoch=2)
            assert [(one.texts, one.digest, one.tally) for one in again] == [
                (one.texts, one.digest, one.tally) for one in windows[index:]
            ]


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=40),
    st.integers(1, 12),
    st.integers(1, 60),
)
def test_texts_in_place_and_texts_one_by_one_give_the_same_windows(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], documents: int, nbytes: int
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    found = []
    for kind in ("jsonl", "parquet", "arrow"):
        write_corpus(kind, folder / kind, texts)
        plan = plan_of(folder / kind, kind=kind, shuffle_buffer=documents, window_bytes=nbytes)
        found.append([(one.texts, one.digest, one.tally) for one in windows_of(held(plan, "training"))])
    assert found[0] == found[1] == found[2]


def test_a_large_document_of_the_other_part_ends_no_window_and_is_not_counted_as_large(tmp_path: Path) -> None:
    large = next("x" * count for count in range(500, 600) if is_held("x" * count))
    small = [f"t{i}" for i in range(90) if not is_held(f"t{i}")][:20]
    write_corpus("parquet", tmp_path, [*small[:10], large, *small[10:]])
    windows = windows_of(held(plan_of(tmp_path, kind="parquet", shuffle_buffer=100, window_bytes=200), "training"))
    assert [sorted(window.texts) for window in windows if window.texts] == [sorted(small)]
    assert sum(window.tally.oversized for window in windows) == 0
    (alone, *_) = windows_of(held(plan_of(tmp_path, kind="parquet", window_bytes=200), "held_out"))
    assert (list(alone.texts), alone.tally.oversized) == ([large], 1)


def test_null_and_empty_texts_are_of_no_part(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, ["a", None, "", "b", "c"])
    for part in ("training", "held_out"):
        windows = windows_of(held(plan_of(tmp_path), part))
        counts = [sum(getattr(one.tally, name) for one in windows) for name in ("records", "null", "empty")]
        assert counts == [5, 1, 1]


def test_a_sieve_cuts_the_key_off_and_hashes_it_alone() -> None:
    rule = HoldOut(0.5, "key:url", 4)
    sieve = Sieve(rule, Shape().with_key("url"))
    for key in ("a", 'b"\n', "ü", "12"):
        value = Shape().with_key("url").value({"url": key, "text": "one\ntext"})
        assert isinstance(value, str)
        document, ours = sieve.document(value.encode())
        assert bytes(document) == b"one\ntext"
        assert ours is (xxhash.xxh3_64_intdigest(key.encode(), 4) >= rule.limit)
