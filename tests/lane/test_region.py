"""A region: what is put there is there until it is given back, and then takes no memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from streamfeed.lane import region
from streamfeed.lane.region import HUGE_PAGE, Region
from streamfeed.lane.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[True, False], ids=["huge pages", "none"])
def offered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system has huge pages, whatever this one has."""
    monkeypatch.setattr(region, "_offered", lambda: request.param)
    return bool(request.param)


def texts(count: int, nbytes: int) -> list[bytes]:
    return [f"{index:06} ".encode() + b"\xc3\xa9" * (nbytes // 2) for index in range(count)]


def test_texts_of_a_large_window_are_the_same_with_huge_pages_and_without(offered: bool) -> None:
    documents = texts(60, 100_000)
    window = Texts([memoryview(document) for document in documents])
    drained: list[str] = []
    for start, some in window.drain(7, 512 << 10):
        assert start == 7 + len(drained)
        drained += some
    assert drained == [document.decode() for document in documents[7:]]
    assert (Region.of(5 << 20) is not None) == offered


def test_what_does_not_fit_is_refused_and_smaller_texts_still_fit() -> None:
    memory = Region(1)
    assert memory.put([b"a" * (HUGE_PAGE - 10)]) is not None
    assert memory.put([b"b" * 6, b"c" * 5]) is None
    place = memory.put([b"b" * 6, memoryview(b"c" * 4)])
    assert place is not None
    assert bytes(place) == b"bbbbbbcccc"


def test_what_is_given_back_takes_no_memory_and_what_is_behind_it_stays() -> None:
    memory = Region(2)
    places = [memory.put([bytes([65 + number]) * (HUGE_PAGE // 2 + 100)]) for number in range(3)]
    kept = [place for place in places if place is not None]
    assert len(kept) == 3
    memory.give_back(len(kept[0]))
    assert kept[0][0] == ord("A")  # its page is shared with the next
    memory.give_back(len(kept[1]))
    assert bytes(kept[0][:100]) == bytes(100)  # as memory that was never used
    assert bytes(kept[2]) == b"C" * len(kept[2])


def test_a_region_begins_where_a_huge_page_does() -> None:
    for pages in (1, 3):
        place = Region(pages).put([b"x"])
        assert place is not None
        assert ctypes.addressof(ctypes.c_char.from_buffer(place)) % HUGE_PAGE == 0


@pytest.mark.parametrize("nbytes", [0, 1, HUGE_PAGE - 1])
def test_little_text_gets_no_page(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "_offered", lambda: True)
    assert Region.of(nbytes) is None


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a folder in the place of what the system says about its huge pages."""
    monkeypatch.setattr(region, "_SYSTEM", tmp_path)
    region._offered.cache_clear()
    yield tmp_path
    region._offered.cache_clear()


@pytest.mark.parametrize(
    ("enabled", "size", "offered"),
    [
        ("always [madvise] never", HUGE_PAGE, True),
        ("[always] madvise never", HUGE_PAGE, True),
        ("always madvise [never]", HUGE_PAGE, False),
        ("[always] madvise never", 512 << 20, False),
        (None, 0, False),
    ],
)
def test_huge_pages_are_asked_for_where_the_system_gives_such(
    system: Path, enabled: str | None, size: int, offered: bool
) -> None:
    if enabled is not None:
        (system / "enabled").write_text(enabled)
        (system / "hpage_pmd_size").write_text(f"{size}\n")
    assert (Region.of(4 << 20) is not None) == offered
