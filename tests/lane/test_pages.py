"""Huge pages: what is put there is there until it is used, and then the page serves another window."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.lane import pages
from streamfeed.lane.pages import HUGE_PAGE, KEPT, Filling, Page, Pages
from streamfeed.lane.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system have huge pages, whatever this one has."""
    monkeypatch.setattr(pages, "_offered", lambda: True)


def documents_of(sizes: list[int]) -> list[bytes]:
    return [
        (f"{index:06} ".encode() + b"\xc3\xa9" * (size // 2))[: max(8, size // 2 * 2 + 7)]
        for index, size in enumerate(sizes)
    ]


def drained(texts: Texts, first: int, nbytes: int) -> list[str]:
    found: list[str] = []
    for start, some in texts.drain(first, nbytes):
        assert start == first + len(found)
        found += some
    return found


@pytest.mark.parametrize("there_are", [True, False], ids=["huge pages", "none"])
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from([10, 20_000, 300_000, 1_100_000, 3_000_000]), min_size=1, max_size=12),
    st.sampled_from([100_000, 496 << 10, 3 << 20]),
    st.integers(0, 3),
)
def test_texts_are_the_same_in_pages_and_elsewhere_also_of_windows_that_are_drained_by_turns(
    there_are: bool, sizes: list[int], nbytes: int, first: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_offered", lambda: there_are)
        shared = Pages()
        documents = documents_of(sizes)
        order = np.random.default_rng(len(sizes)).permutation(len(sizes))
        expected = [documents[index].decode() for index in order]
        turns = [Texts([memoryview(one) for one in documents], order, shared).drain(first, nbytes) for _ in range(2)]
        found: list[list[str]] = [[], []]
        while turns[0].gi_frame or turns[1].gi_frame:  # type: ignore[attr-defined]  # both are generators
            for turn, texts in zip(turns, found, strict=True):
                texts += next(turn, (0, []))[1]
        assert found == [expected[first:]] * 2
        again = Texts([memoryview(one) for one in documents], order, shared)
        assert drained(again, first, nbytes) == expected[first:]


@pytest.mark.usefixtures("offered")
def test_a_page_serves_again_once_the_last_of_its_pieces_was_used() -> None:
    shared = Pages()
    filling = Filling(shared, 3 * HUGE_PAGE)
    half = HUGE_PAGE // 2
    placed = [filling.put([b"a" * half], half) for _ in range(4)]
    taken = [page for place in placed if place for page in place[1:]]
    assert len(taken) == 4
    assert taken[0] is taken[1] is not taken[2] is taken[3]
    shared.used(taken[0])
    assert shared.take() is not taken[0]
    shared.used(taken[1])
    assert shared.take() is taken[0]
    assert taken[0].put([b"b" * HUGE_PAGE], HUGE_PAGE) is not None


def test_few_free_pages_are_kept() -> None:
    shared = Pages()
    held = [shared.take() for _ in range(KEPT + 3)]
    for page in held:
        assert page.put([b"x"], 1) is not None
        shared.used(page)
    assert sum(shared.take() in held for _ in held) == KEPT


def test_what_does_not_fit_is_refused_and_smaller_texts_still_fit() -> None:
    page = Page()
    assert page.put([b"a" * (HUGE_PAGE - 10)], HUGE_PAGE - 10) is not None
    assert page.put([b"b" * 6, b"c" * 5], 11) is None
    place = page.put([b"b" * 6, memoryview(b"c" * 4)], 10)
    assert place is not None
    assert bytes(place) == b"bbbbbbcccc"


def test_a_page_begins_where_a_huge_one_does() -> None:
    for _ in range(3):
        place = Page().put([b"x"], 1)
        assert place is not None
        assert ctypes.addressof(ctypes.c_char.from_buffer(place)) % HUGE_PAGE == 0


@pytest.mark.usefixtures("offered")
def test_little_text_takes_no_page() -> None:
    assert Filling(Pages(), HUGE_PAGE - 1).put([b"x"], 1) is None
    assert Filling(None, 4 * HUGE_PAGE).put([b"x"], 1) is None
    filling, half = Filling(Pages(), HUGE_PAGE + 1000), HUGE_PAGE // 2
    assert filling.put([b"x" * half], half) is not None
    assert filling.put([b"x" * half], half) is not None
    assert filling.put([b"x" * 1000], 1000) is None  # a page would be all but empty


@pytest.mark.usefixtures("offered")
def test_a_piece_larger_than_half_a_page_lies_elsewhere_and_those_behind_it_in_pages() -> None:
    filling, large = Filling(Pages(), 5 * HUGE_PAGE), HUGE_PAGE // 2 + 1
    assert filling.put([b"x" * large], large) is None
    assert filling.put([b"x"], 1) is not None
    assert filling.put([b"x" * large], large) is not None  # in what is left of the page


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a folder in the place of what the system says about its huge pages."""
    monkeypatch.setattr(pages, "_SYSTEM", tmp_path)
    pages._offered.cache_clear()
    yield tmp_path
    pages._offered.cache_clear()


@pytest.mark.parametrize(
    ("enabled", "size", "expected"),
    [
        ("always [madvise] never", HUGE_PAGE, True),
        ("[always] madvise never", HUGE_PAGE, True),
        ("always madvise [never]", HUGE_PAGE, False),
        ("[always] madvise never", 512 << 20, False),
        (None, 0, False),
    ],
)
def test_huge_pages_are_asked_for_where_the_system_gives_such(
    system: Path, enabled: str | None, size: int, expected: bool
) -> None:
    if enabled is not None:
        (system / "enabled").write_text(enabled)
        (system / "hpage_pmd_size").write_text(f"{size}\n")
    assert (Filling(Pages(), 4 << 20).put([b"x"], 1) is not None) == expected
