"""Control strings in texts: each is counted, and none is missed for speed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.encode.controls import ControlCounter
from streamfeed.encode.tokenizer import TokenizerSpec

LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{number}|>" for number in range(256)))
SETS = {
    "llama": LLAMA,
    "sentencepiece": ("<s>", "</s>", "<unk>", "<pad>"),
    "bert": ("[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]"),
    "nested": ("<a", "<a>", "<a>b", "ab", "abc", "c", "▁b", "x|"),
    "letters": ("end", "END", "e"),
}


def counter(strings: tuple[str, ...], others: tuple[str, ...] = ()) -> ControlCounter:
    added = [
        {"id": number, "content": content, "special": content in strings}
        for number, content in enumerate((*strings, *others))
    ]
    return ControlCounter(TokenizerSpec(json.dumps({"added_tokens": added}), "", None, None, None, 1, "fake"))


def naive(strings: tuple[str, ...], text: str) -> int:
    count = at = 0
    ordered = sorted(strings, key=len, reverse=True)
    while at < len(text):
        found = next((string for string in ordered if text.startswith(string, at)), None)
        count, at = (count + 1, at + len(found)) if found else (count, at + 1)
    return count


@pytest.mark.parametrize("name", SETS)
@given(st.data())
def test_every_control_string_is_counted_the_longest_first(name: str, data: st.DataObject) -> None:
    strings = SETS[name]
    pieces = st.sampled_from([*strings[:7], *(string[:-1] for string in strings[:7]), *"<|[a> é中\n", "< " * 9])
    texts = data.draw(st.lists(st.lists(pieces, max_size=8).map("".join), max_size=6))
    expected = [naive(strings, text) for text in texts]
    found = counter(strings).count(texts)
    assert (found is None) == (not any(expected))
    if found is not None:
        assert (found.tolist(), found.dtype.name) == (expected, "int64")


def test_each_of_hundreds_of_reserved_strings_is_found() -> None:
    found = counter(LLAMA).count([f"x{string}y" for string in LLAMA])
    assert found is not None
    assert found.tolist() == [1] * len(LLAMA)


def test_an_added_word_that_is_not_special_is_an_ordinary_word() -> None:
    assert counter(("</s>",), others=("<think>",)).count(["<think>", "a < b"]) is None


def test_a_tokenizer_without_special_tokens_has_none() -> None:
    assert counter(()).count(["<s>"]) is None
    assert counter(("<s>",)).count([]) is None
