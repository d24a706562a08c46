"""The texts of a window: all of them once, in their order, and let go of as they are used."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.lane.texts import Texts

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=20)


@given(TEXTS, st.integers(0, 25), st.integers(1, 40))
def test_draining_gives_every_text_from_the_first_on_once_in_order(
    given_texts: list[str], first: int, nbytes: int
) -> None:
    order = np.random.default_rng(len(given_texts)).permutation(len(given_texts))
    texts = Texts([memoryview(text.encode()) for text in given_texts], order)
    expected = [given_texts[index] for index in order]
    assert texts == expected
    drained = list(texts.drain(first, nbytes))
    assert [text for _, part in drained for text in part] == expected[first:]
    assert [start + i for start, part in drained for i in range(len(part))] == list(range(first, len(expected)))
    for _, part in drained:
        assert sum(len(text.encode()) for text in part[:-1]) < nbytes
    assert len(texts) == len(expected)


class Held(bytearray):
    """Bytes that say when they are gone."""


def test_what_was_read_is_let_go_of_before_the_first_texts_are_used() -> None:
    read = [Held(b"a" * 10), Held(b"b" * 10)]
    gone = [weakref.ref(one) for one in read]
    texts = Texts([memoryview(one) for one in read])
    del read
    coming = texts.drain(0, 10)
    next(coming)
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_texts_that_were_handed_out_are_held_by_nobody_else() -> None:
    coming = Texts([b"a" * 10, b"b" * 10]).drain(0, 10)
    _, texts = next(coming)
    lone: list[str] = []
    assert sys.getrefcount(texts) == sys.getrefcount(lone)
    assert next(coming)[1] == ["b" * 10]
