"""What is picked of a decoded record, wherever it comes from."""

from __future__ import annotations

import decimal
import json
import pickle
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.formats.fields import text_of
from streamfeed.formats.protocol import Bad
from streamfeed.formats.shape import Field, Shape

PAIR = Shape(fields=(Field("text", None, "text"), Field("label", "meta.label", "label")), classes=3)


def test_named_gives_a_name_to_fields_that_have_none() -> None:
    assert PAIR.named("txt").fields == (Field("text", "txt", "text"), Field("label", "meta.label", "label"))
    assert Shape().named("txt") == Shape("txt")
    assert Shape("body").named("txt") == Shape("body")


def test_a_field_without_a_name_is_found_by_its_key() -> None:
    assert PAIR.pick({"text": "a", "meta": {"label": 1}}) == {"text": "a", "label": 1}


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "a.b", "b.a", "a.b.a"]),
        st.recursive(
            st.none() | st.text(max_size=3) | st.integers(0, 3),
            lambda inner: st.dictionaries(st.sampled_from("ab"), inner),
        ),
    ),
    st.sampled_from(["a", "a.b", "a.b.a", "b.a"]),
)
def test_a_text_is_found_as_text_of_does_and_bad_in_its_words(record: dict[str, Any], name: str) -> None:
    wanted = text_of(record, name, "here")
    found = Shape(fields=(Field("x", name, "text"),)).pick(record, "here")
    assert found == ({"x": wanted} if isinstance(wanted, str) else wanted)


@pytest.mark.parametrize(
    ("label", "number"),
    [(0, 0), (2, 2), (True, 1), (np.int64(2), 2), (np.uint8(1), 1), ("1", 1), (" 2\n", 2), (None, None)],
)
def test_labels_are_numbers_below_the_classes(label: object, number: int | None) -> None:
    found = PAIR.pick({"text": "a", "meta": {"label": label}})
    assert found == (None if number is None else {"text": "a", "label": number})


@pytest.mark.parametrize("label", [3, -1, 1.0, "x", "", "-1", "1.0", "٣", "9" * 30, [1], {}, b"1", 10**30])
def test_anything_else_is_no_label(label: object) -> None:
    found = PAIR.pick({"text": "a", "meta": {"label": label}}, "row 7")
    assert isinstance(found, Bad)
    assert found.where == "row 7"
    assert "field 'meta.label' is " in found.cause
    assert "from 0 to 2" in found.cause


def test_labels_by_name_are_texts_alone() -> None:
    shape = Shape(fields=(Field("label", "label", "label"),), labels=("0", "no", " "))
    assert [shape.pick({"label": one}) for one in ("0", "no", " ", "no\n")] == [{"label": i} for i in (0, 1, 2, 1)]
    for label in (0, True, "yes", ""):
        assert isinstance(shape.pick({"label": label}), Bad), label


def test_a_bad_field_is_said_also_where_another_is_null() -> None:
    assert isinstance(PAIR.pick({"text": None, "meta": {"label": 9}}), Bad)
    assert PAIR.pick({"text": None, "meta": {"label": 2}}) is None
    assert PAIR.pick({"text": "a", "meta": None}) is None
    assert PAIR.pick([1], "x") == Bad("x", "the record is a list, not an object")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_value_is_json_that_says_the_same(value: object) -> None:
    shape = Shape(fields=(Field("x", "y", "any"), Field("again", "y", "any")))
    made = shape.value({"y": value, "unused": object()})
    assert isinstance(made, str)
    assert orjson.loads(made) == json.loads(made) == {"x": value, "again": value}


@pytest.mark.parametrize("value", [b"a", decimal.Decimal(1), 10**30, {1: {2: object()}}, ["\ud800"], {1j}])
def test_what_json_cannot_say_is_bad_and_names_its_field(value: object) -> None:
    shape = Shape(fields=(Field("x", "x", "any"), Field("y", "y.z", "any")))
    found = shape.value({"x": 1, "y": {"z": value}}, "row 1")
    assert isinstance(found, Bad)
    assert found.where == "row 1"
    assert found.cause.startswith("field 'y.z' holds what JSON cannot say: ")


def test_a_value_of_a_plain_shape_is_the_text() -> None:
    assert Shape("a.b").value({"a": {"b": "text"}}) == "text"
    assert Shape().value({"text": None}) is None


def test_a_shape_can_be_sent_and_compared_after_it_was_used() -> None:
    assert isinstance(PAIR.value({"text": "a", "meta": {"label": 1}}), str)
    sent = pickle.loads(pickle.dumps(PAIR))
    assert sent == PAIR
    assert hash(sent) == hash(PAIR)
