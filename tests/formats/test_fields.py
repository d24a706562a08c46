"""Dotted names in decoded records."""

from __future__ import annotations

import pytest

from streamfeed.formats.fields import text_of
from streamfeed.formats.protocol import Bad


@pytest.mark.parametrize(
    ("record", "field", "text"),
    [
        ({"a": "x"}, "a", "x"),
        ({"a": {"b": {"c": "x"}}}, "a.b.c", "x"),
        ({"a.b": {"c": "x"}, "a": {"b": {"c": "no"}}}, "a.b.c", "x"),
        ({"a": {"b.c": "x", "b": {"c": "no"}}}, "a.b.c", "x"),
        ({"a.b.c": "x", "a.b": {"c": "no"}}, "a.b.c", "x"),
        ({"a": {"b": None}}, "a.b.c", None),
        ({"a": None}, "a.b.c", None),
        ({"a.b": None, "a": {"b": "no"}}, "a.b", None),
        ({"a": ""}, "a", ""),
    ],
)
def test_the_longest_literal_key_wins_and_null_on_the_way_is_null(record: object, field: str, text: str | None) -> None:
    assert text_of(record, field) == text


@pytest.mark.parametrize(
    ("record", "field", "cause"),
    [
        ({"b": 1, "c": 2}, "a", "there is no field 'a'; fields present: b, c"),
        ({}, "a", "there is no field 'a'; fields present: none"),
        ({"a": {"x": 1}}, "a.b", "there is no field 'a.b'; fields of 'a' present: x"),
        ({"a": {"b": {"x": 1}}}, "a.b.c", "there is no field 'a.b.c'; fields of 'a.b' present: x"),
        ({"a": {"b": 3}}, "a.b.c", "there is no field 'a.b.c': 'a.b' is a number, not an object"),
        ({"a": ["x"]}, "a", "field 'a' is a list, not a string"),
        ({"a": {"b": "x"}}, "a", "field 'a' is an object, not a string"),
        ({"a": True}, "a", "field 'a' is a boolean, not a string"),
        ([], "a", "the record is a list, not an object"),
        (
            {str(i): i for i in range(30)},
            "a",
            "there is no field 'a'; fields present: " + ", ".join(map(str, range(20))) + " and 10 more",
        ),
    ],
)
def test_what_is_no_text_is_bad_and_says_what_was_found(record: object, field: str, cause: str) -> None:
    assert text_of(record, field, "byte 7") == Bad("byte 7", cause)
