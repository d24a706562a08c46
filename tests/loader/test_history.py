"""The states of the last batches."""

from __future__ import annotations

import pytest

from streamfeed.dataset.state import StreamState
from streamfeed.errors import StateError
from streamfeed.loader.history import KEPT_STATES, History

BASE = StreamState({"lanes": 2}, rows=10)


def test_before_the_first_batch_the_state_is_the_one_that_was_loaded() -> None:
    history = History(BASE)
    assert history.now.state(4) == BASE.to_json() == history.find(0).state(4)


def test_batches_are_counted_on_across_a_restart() -> None:
    history = History(BASE)
    for _ in range(3):
        history.batch((b'{"0": {}}', b'{"1": {}}'))
    assert history.now.state(4)["rows"] == 22
    assert sorted(history.now.state(4)["lanes"]) == ["0", "1"]
    history.restart(StreamState({"lanes": 2}, rows=22))
    assert history.now.state(4)["rows"] == 22
    history.batch((b"{}",))
    assert [history.find(number).state(4)["rows"] for number in range(5)] == [10, 14, 18, 22, 26]


def test_only_the_state_behind_everything_is_that_of_the_end() -> None:
    history = History(BASE)
    history.batch((b"{}",))
    history.end((b"{}",))
    assert history.now.state(4)["ended"]
    assert not history.find(1).state(4)["ended"]


def test_states_to_come_and_states_too_old_are_refused() -> None:
    history = History(BASE)
    with pytest.raises(StateError, match=r"no state of batch 1: 0 were handed out"):
        history.find(1)
    for _ in range(KEPT_STATES + 5):
        history.batch((b"{}",))
    assert history.find(5).number == 5
    with pytest.raises(
        StateError, match=rf"no state of batch 4: {KEPT_STATES + 5} were handed out, the last {KEPT_STATES}"
    ):
        history.find(4)
