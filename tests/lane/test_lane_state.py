"""A lane's state: the same after JSON, small, and refused when it is damaged."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import StateError
from streamfeed.lane.state import LaneState, Place, SourceState
from streamfeed.stats import TALLY_NAMES, Tally

COUNT = st.integers(0, (1 << 62) - 1)
PLACES = st.builds(Place, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT, st.booleans())
SOURCES = st.builds(
    SourceState,
    PLACES,
    COUNT,
    COUNT,
    st.text("0123456789abcdef", max_size=16),
    COUNT,
    st.floats(0, 1e15),
    st.booleans(),
)
STATES = st.builds(
    LaneState,
    rows=COUNT,
    chain=st.integers(0, (1 << 64) - 1),
    current=st.integers(-1, 9),
    offset=COUNT,
    ended=st.booleans(),
    tally=st.builds(Tally, *[COUNT] * len(TALLY_NAMES)),
    sources=st.lists(SOURCES, max_size=3).map(tuple),
)
STATE = LaneState(
    5, 1 << 63, 0, 3, False, Tally(records=9, null=1), (SourceState(Place(1, 2), 4, 1, "ab", 5, 0.5, True),)
)


@given(STATES)
def test_a_state_comes_back_from_json_as_it_was(state: LaneState) -> None:
    assert LaneState.from_json(json.loads(json.dumps(state.to_json()))) == state


@given(STATES)
def test_no_number_in_the_json_is_a_64_bit_hash(state: LaneState) -> None:
    data = state.to_json()
    assert isinstance(data["chain"], str)
    assert all(isinstance(source["digest"], str) for source in data["sources"])


def places_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in items for found in ((*path, key), *places_in(value, (*path, key)))]


def damages() -> list[tuple[tuple[Any, ...], object]]:
    """Every way to damage one value: gone (``...``), of another type, or a negative count."""
    found: list[tuple[tuple[Any, ...], object]] = []
    for path in places_in(STATE.to_json()):
        value = at(STATE.to_json(), path)
        if path[0] != "tally" and path != ("sources", 0):  # counts of zero are left out; the stream counts the sources
            found.append((path, ...))
        if path[-1] != "digest":  # any other digest is found wrong when the window is read again
            found.append((path, {"other": []}))
        if type(value) is int:
            found += [(path, -2), (path, str(value)), (path, True)]
    return found


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


@pytest.mark.parametrize(("path", "damage"), damages(), ids=str)
def test_a_damaged_state_is_refused(path: tuple[Any, ...], damage: object) -> None:
    data = deepcopy(STATE.to_json())
    inside = at(data, path[:-1])
    if damage is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = damage
    with pytest.raises(StateError, match="damaged"):
        LaneState.from_json(data)


def test_a_lane_starts_at_the_first_epoch_of_its_pass() -> None:
    state = LaneState.start(2, 6)
    assert [source.place for source in state.sources] == [Place(epoch=6)] * 2
    assert (state.rows, state.current, state.ended) == (0, -1, False)
