"""Reading ahead: in order, bounded, and errors in the place of their item."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from streamfeed.lane.ahead import Ahead, AheadThread, _Answer
from tests.lanes import ahead_thread

if TYPE_CHECKING:
    from collections.abc import Iterator


def until_five() -> Iterator[int]:
    yield from range(5)
    raise ValueError("after five")


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("depth", [1, 3, 9])
def test_items_come_in_order_and_an_error_in_the_place_of_its_item(threads: int, depth: int) -> None:
    with ahead_thread() as thread:
        ahead = Ahead(until_five(), thread if threads else None, depth)
        ahead.start()
        assert [ahead.take() for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(ValueError, match="after five"):
            ahead.take()


@pytest.mark.parametrize("threads", [0, 1])
def test_the_end_is_none_ever_after(threads: int) -> None:
    with ahead_thread() as thread:
        ahead = Ahead(iter([7]), thread if threads else None, 3)
        assert [ahead.take() for _ in range(4)] == [7, None, None, None]


def test_no_more_than_the_depth_is_drawn_ahead() -> None:
    drawn = []

    def items() -> Iterator[int]:
        for item in range(100):
            drawn.append(item)
            yield item

    with ahead_thread() as thread:
        ahead = Ahead(items(), thread, 3)
        ahead.start()
        ahead.start()
        wait_for(thread)
        assert drawn == [0, 1, 2]
        assert ahead.take() == 0
        wait_for(thread)
        assert drawn == [0, 1, 2, 3], "the next is drawn while this one is used"


def wait_for(thread: AheadThread) -> None:
    """Wait until all that was asked for so far is done."""
    answers: SimpleQueue[_Answer] = SimpleQueue()
    thread.ask(iter([1]), answers)
    answers.get()


def test_what_was_asked_for_and_not_begun_is_dropped_when_the_thread_stops() -> None:
    begun, go_on = SimpleQueue[int](), SimpleQueue[int]()
    drawn = []

    def items() -> Iterator[int]:
        for item in range(9):
            drawn.append(item)
            begun.put(item)
            go_on.get()
            yield item

    with ahead_thread() as thread:
        ahead = Ahead(items(), thread, 3)
        ahead.start()
        begun.get()
        thread.stop()
        go_on.put(1)
    assert drawn == [0]


def test_without_a_thread_nothing_is_drawn_before_it_is_taken() -> None:
    drawn = []

    def items() -> Iterator[int]:
        drawn.append(1)
        yield 1

    ahead = Ahead(items(), None, 3)
    ahead.start()
    assert not drawn
    assert ahead.take() == 1
