"""Arrow's JSON parser is used where it gives what Python's objects would, and nowhere else."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.convert.json_tables import parsed
from streamfeed.convert.schema import MixedTypesError, table_of

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["2020-01-01", "2020-01-01T00:00:00Z", "12:00", "1", "true", "null", "NaN"]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c.d", "e"]), values), min_size=1, max_size=6)
alike = st.lists(
    st.fixed_dictionaries(
        {}, optional={"a": numbers, "b": texts, "c": st.lists(texts), "d": st.dictionaries(texts, numbers)}
    ),
    min_size=1,
    max_size=8,
)


@given(records | alike)
def test_what_arrow_parses_is_what_python_s_objects_give(found: list[dict[str, Any]]) -> None:
    table = parsed([orjson.dumps(record) for record in found])
    if table is None:
        return
    expected = table_of(found)
    assert table.schema == expected.schema
    assert table.to_pylist() == expected.to_pylist()


def test_usual_records_are_parsed_by_arrow_and_times_stay_texts() -> None:
    found = [{"id": 1, "text": "a", "at": "2020-01-01T00:00:00Z", "meta": {"at": ["2020-01-01"], "p": 0.5}}] * 3
    table = parsed([orjson.dumps(record) for record in found])
    assert table is not None
    assert table.to_pylist() == found


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"a":9007199254740993}', b'{"a":0.5}'],
        [b'{"a":123456789012345678901234567890}'],
        [b'{"a":{}}'],
        [b'{"a":1}{"a":2}'],
        [b'{"a":', b"1}"],
        [b'{"a":1}{"a":2}', b'{"a":', b"3}"],
        [b"[1]"],
        [b'{"a":"\xff"}'],
        [b'{"a":"\\ud800"}'],
        [b'{"a":NaN}'],
        [b'{"a":1}', b'{"a":"x"}'],
        [b'{"a":1,"a":2}'],
        [b""],
        [],
    ],
)
def test_what_takes_a_careful_look_gets_one(lines: list[bytes]) -> None:
    assert parsed(lines) is None


def test_a_field_of_two_types_is_refused_by_both() -> None:
    with pytest.raises(MixedTypesError):
        table_of([{"a": 1}, {"a": "x"}])
