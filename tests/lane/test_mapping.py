"""A user's function on the documents of a window: what it gives, from where, and what is counted as dropped."""

from __future__ import annotations

from typing import Any

import pytest

from streamfeed.formats.shape import Field, Shape
from streamfeed.lane.mapping import Mapper
from streamfeed.lane.state import Place
from streamfeed.objectives import Map

SHAPE = Shape(fields=(Field("text", None, "text"),))
GIVEN: dict[str, list[str | None]] = {
    "none": [],
    "null": [None],
    "one": ["a"],
    "mixed": ["a", None, "b"],
    "two": ["a", "b"],
}


def given(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"text": text} for text in GIVEN[record["text"]]]


def all_given(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [made for record in records for made in given(record)]


def run(settings: Map, *names: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Where samples come from, and what was dropped before each."""
    mapped = Mapper(settings, SHAPE, 0, 0).run([{"text": name} for name in names], 0, Place(), 0)
    assert len(mapped.records) == len(mapped.dropped) - 1
    return list(zip(*(part.tolist() for part in mapped.origins), strict=True)), mapped.dropped.tolist()


def test_documents_that_give_nothing_and_records_with_a_null_are_dropped_and_counted() -> None:
    origins, dropped = run(Map(given), "none", "mixed", "null", "one", "none", "two")
    assert origins == [(1, 0), (1, 1), (3, 0), (5, 0), (5, 1)]
    # The null of "mixed" is counted behind its first record.
    assert dropped == [1, 2, 3, 4, 4, 4]
    assert run(Map(given), "none", "null") == ([], [2])


@pytest.mark.parametrize(
    ("names", "lost"), [(["mixed", "one"], 1), (["none", "one"], 1), (["null", "one"], 1), (["two", "none"], 0)]
)
def test_of_a_slice_is_lost_what_is_null_or_fewer_than_were_given(names: list[str], lost: int) -> None:
    origins, dropped = run(Map(all_given, batched=True), *names)
    assert origins == [(0, i) for i in range(len(origins))]
    assert dropped == [0, *[lost] * len(origins)]
    assert run(Map(all_given, batched=True), "none", "null") == ([], [2])
