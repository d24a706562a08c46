"""The accounts of time: what is charged to whom."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.stages import NOTHING, STAGES, Clock, Figures, Recorded, Stages, Work, read_recorded


class Time:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.ns = 1000

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def time() -> Time:
    return Time()


def test_every_name_is_a_stage() -> None:
    assert tuple(name for name in Stages.__annotations__) == STAGES


def test_a_span_inside_another_takes_the_time_from_it(time: Time) -> None:
    stages = Stages(Clock(time))
    with stages.decode.busy:
        time.ns += 5
        with stages.read.busy:
            time.ns += 70
        with stages.read.starved:
            time.ns += 200
        time.ns += 1000
    figures = stages.figures()
    assert figures["decode"] == Work(busy_ns=1005)
    assert figures["read"] == Work(busy_ns=70, starved_ns=200)


def test_time_between_spans_is_charged_to_nobody(time: Time) -> None:
    stages = Stages(Clock(time))
    with stages.decode.busy:
        time.ns += 5
    time.ns += 100
    with stages.decode.busy:
        time.ns += 6
    assert stages.figures()["decode"].busy_ns == 11


def test_an_error_ends_the_spans_it_passes(time: Time) -> None:
    stages = Stages(Clock(time))
    with suppress(KeyError), stages.pack.busy, stages.read.busy:
        time.ns += 3
        raise KeyError
    time.ns += 50
    with stages.pack.busy:
        time.ns += 4
    assert (stages.figures()["pack"].busy_ns, stages.figures()["read"].busy_ns) == (4, 3)
    assert not stages.clock.open


def test_a_span_that_a_signal_kept_from_ending_ends_with_the_one_around_it(time: Time) -> None:
    stages = Stages(Clock(time, record=True))
    with stages.pack.busy:
        stages.read.busy.__enter__()  # and what would call __exit__ never runs
        time.ns += 3
    assert not stages.clock.open
    assert [span.stage for span in read_recorded(stages.take_recorded())] == ["pack"]


@st.composite
def nested(draw: st.DrawFn, depth: int = 3) -> list[tuple[int, int, object]]:
    """Spans, each with its stage, the time before its end, and the spans inside."""
    if not depth:
        return []
    stage, spent = st.integers(0, len(STAGES) - 1), st.integers(0, 50)
    return draw(st.lists(st.tuples(stage, spent, nested(depth - 1)), max_size=3))


@given(nested())
def test_accounts_of_a_thread_add_up_to_its_time_inside_spans(spans: list[tuple[int, int, object]]) -> None:
    time = Time()
    stages = Stages(Clock(time))

    def live(inner: object) -> None:
        assert isinstance(inner, list)
        for stage, spent, deeper in inner:
            with getattr(stages, STAGES[stage]).busy:
                live(deeper)
                time.ns += spent

    live(spans)
    assert sum(work.busy_ns for work in stages.figures().works) == time.ns - 1000


works = st.builds(Work, *[st.integers(-(2**40), 2**40)] * 5)
figures = st.lists(works, min_size=len(STAGES), max_size=len(STAGES)).map(lambda some: Figures(tuple(some)))


@given(figures, figures)
def test_what_was_done_since_added_to_what_was_done_before_is_all(before: Figures, now: Figures) -> None:
    assert before + (now - before) == now
    assert now - NOTHING == now


def test_accounts_of_several_threads_arrive_as_their_sum(time: Time) -> None:
    reading, handing = Stages(Clock(time)), Stages(Clock(time))
    reading.encode.count(3, 40)
    handing.encode.count(1, 2)
    with handing.send.blocked:
        time.ns += 9
    found = Figures.of(reading.to_bytes() + handing.to_bytes())
    assert dict(found.items()) == {"encode": Work(items=4, bytes=42), "send": Work(blocked_ns=9)}
    assert Figures.of(b"") == NOTHING


def test_spans_are_recorded_whole_and_taken_once(time: Time) -> None:
    stages = Stages(Clock(time, record=True))
    with stages.decode.busy:
        time.ns += 5
        with stages.read.starved:
            time.ns += 70
    begin = stages.wait.busy.now()
    time.ns += 175
    stages.wait.passed(begin)
    assert list(read_recorded(stages.take_recorded())) == [
        Recorded("read", "starved", 1005, 70),
        Recorded("decode", "busy", 1000, 75),
        Recorded("wait", "busy", 1075, 175),
    ]
    assert stages.take_recorded() == b""


def test_nothing_is_recorded_unless_it_is_asked_for(time: Time) -> None:
    stages = Stages(Clock(time))
    with stages.decode.busy:
        time.ns += 5
    assert stages.take_recorded() == b""
