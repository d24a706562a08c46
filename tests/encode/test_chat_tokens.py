"""Whose special strings are whose."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer

from streamfeed.encode.chat_tokens import ChatTokenizer
from tests.tokenizers_for_tests import bpe_json


def tokenizer_with(*specials: str) -> tuple[ChatTokenizer, Tokenizer]:
    backend = Tokenizer.from_str(bpe_json())
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    return ChatTokenizer(backend.to_str(), trimmed=False), backend


def test_a_special_string_of_the_template_behind_a_foreign_beginning_is_its_own() -> None:
    tokenizer, backend = tokenizer_with("ab", "bc")
    assert tokenizer.own("abc", [(0, 1)]) == ([(1, 3)], 1)
    assert tokenizer.own("abc", []) == ([(0, 2)], 0)
    assert tokenizer.own("ab bc ab", [(2, 2), (3, 5)]) == ([(0, 2), (6, 8)], 1)
    apart = tokenizer.encode_apart("abc", [(1, 3)])
    assert apart.ids.tolist() == [backend.token_to_id("a"), backend.token_to_id("bc")]


def test_a_special_string_that_ends_in_a_foreign_range_is_text() -> None:
    tokenizer, backend = tokenizer_with("<|x|>")
    assert tokenizer.own("<|x|><|x|>", [(7, 10)]) == ([(0, 5)], 1)
    ids = tokenizer.encode_apart("<|x|><|x|>", [(0, 5)]).ids.tolist()
    assert ids.count(backend.token_to_id("<|x|>")) == 1 == ids.index(backend.token_to_id("<|x|>")) + 1


def test_the_longest_special_string_at_a_place_is_found() -> None:
    tokenizer, _ = tokenizer_with("<a", "<a>", "<a>b")
    assert tokenizer.own("<a>b<a", []) == ([(0, 4), (4, 6)], 0)


def test_a_tokenizer_without_special_strings_has_none() -> None:
    backend = Tokenizer.from_str(bpe_json().replace('"special":true', '"special":false'))
    tokenizer = ChatTokenizer(backend.to_str(), trimmed=False)
    assert tokenizer.own("<|endoftext|>", [(0, 13)]) == ([], 0)


def test_tokens_know_the_characters_that_they_are_of() -> None:
    tokenizer, _ = tokenizer_with("<x>")
    text = "return <x> é👩\n\n end"
    (tokens,) = tokenizer.encode([text], offsets=True)
    spans = [tokens.characters(i) for i in range(len(tokens.ids))]
    for place in range(len(text) + 2):
        assert tokens.first_from(place) == sum(begin < place for begin, _ in spans)
        assert tokens.first_beyond(place) == sum(end <= place for _, end in spans)
