"""Samples with a class: the ids and token types that transformers gives."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.encode.objectives.classification import ClassificationSamples, longest_first
from streamfeed.encode.objectives.protocol import SECOND
from streamfeed.errors import ConfigError
from tests.encode.sample_tokenizers import FRAMES, loaded, sample_spec, samples_of
from tests.tokenizers_for_tests import standard_library_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec

PIECES = [
    "import",
    " os",
    "\n",
    "def ",
    "Café",
    " 東京",
    "🙂",
    "  ",
    "x",
    "[SEP]",
    "<mask>",
    "</s>",
    "##ing",
    "unlikeliest",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def records_of(texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [{"text": text, "label": number} for number, text in enumerate(texts)]
    if pairs is not None:
        for record, text in zip(records, pairs, strict=True):
            record["text_pair"] = text
    return records


@pytest.mark.parametrize("name", FRAMES)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5), seq_len=st.integers(6, 40))
def test_pairs_have_the_ids_types_and_truncation_of_transformers(
    name: str, pairs: list[tuple[str, str]], seq_len: int
) -> None:
    spec, firsts, seconds = sample_spec(name), [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    samples = ClassificationSamples(spec, seq_len, pair=True).encode(records_of(firsts, seconds))
    limits = {"truncation": True, "max_length": seq_len, "return_token_type_ids": True}
    expected = loaded(name)(firsts, seconds, **limits)  # one pair alone would lose an empty second text
    assert samples_of(samples) == [list(ids) for ids in expected["input_ids"]]
    assert samples.ids.dtype == np.int32
    whole = [len(ids) for ids in loaded(name)(firsts, seconds)["input_ids"]]
    truncated = samples.counts.get("truncated", np.zeros(len(pairs)))
    assert truncated.tolist() == [int(length > seq_len) for length in whole]
    if name == "bert":
        assert samples.flags is not None
        types = [kind for types in expected["token_type_ids"] for kind in types]
        assert samples.flags.tolist() == [SECOND * kind for kind in types]
    else:
        assert samples.flags is None  # such models take no token types


@pytest.mark.parametrize("name", FRAMES)
@given(texts=st.lists(TEXTS, min_size=1, max_size=5), seq_len=st.integers(3, 30))
def test_single_texts_have_the_ids_and_truncation_of_transformers(name: str, texts: list[str], seq_len: int) -> None:
    samples = ClassificationSamples(sample_spec(name), seq_len, pair=False).encode(records_of(texts))
    expected = [list(loaded(name)(text, truncation=True, max_length=seq_len)["input_ids"]) for text in texts]
    assert samples_of(samples) == expected
    assert samples.flags is None
    assert samples.values is not None
    assert samples.values.tolist() == list(range(len(texts)))
    assert samples.values.dtype == np.int64


@given(first=st.integers(0, 40), second=st.integers(0, 40), room=st.integers(2, 50))
def test_the_longer_text_of_a_pair_gives_way(first: int, second: int, room: int) -> None:
    kept = longest_first(np.asarray([first]), np.asarray([second]), room)[:, 0].tolist()
    assert sum(kept) == min(first + second, room)
    assert kept[0] <= first
    assert kept[1] <= second
    if first + second > room:
        left, right = (min(length, room // 2) for length in (first, second))
        assert kept[0] >= left  # neither gives more than down to half of the room
        assert kept[1] >= right


def test_an_empty_text_is_a_sample_of_special_tokens() -> None:
    bert = ClassificationSamples(sample_spec("bert"), 8, pair=False).encode(records_of(["", "os", ""]))
    assert samples_of(bert)[0] == samples_of(bert)[2] == [2, 3]
    roberta = ClassificationSamples(sample_spec("roberta"), 8, pair=True).encode(records_of([""], [""]))
    assert samples_of(roberta) == [[0, 2, 2, 2]]


def test_a_control_string_is_text_and_counted() -> None:
    class Counter:
        def count(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
            found = np.asarray([text.count("[SEP]") for text in texts], dtype=np.int64)
            return found if found.any() else None

    spec = sample_spec("bert")
    encoder = ClassificationSamples(spec, 64, pair=True, controls=Counter())
    samples = encoder.encode(records_of(["a [SEP] b", "a"], ["[SEP][SEP]", "b"]))
    assert samples.counts["controls"].tolist() == [3, 0]
    assert [ids.count(3) for ids in samples_of(samples)] == [2, 2]  # those of the frame alone
    assert "controls" not in encoder.encode(records_of(["a"], ["b"])).counts


def test_no_records_are_no_samples() -> None:
    for pair in (False, True):
        samples = ClassificationSamples(sample_spec("bert"), 16, pair=pair).encode([])
        assert samples.offsets.tolist() == [0]
        assert samples.values is not None
        assert len(samples.ids) == len(samples.values) == 0


def test_long_texts_are_cut_without_an_encoding_of_what_is_lost() -> None:
    text = standard_library_texts()[0]
    samples = ClassificationSamples(sample_spec("bert"), 8, pair=True).encode(records_of([text], [text[::-1]]))
    assert len(samples.ids) == 8
    assert samples.counts["truncated"].tolist() == [1]


@pytest.mark.parametrize(("name", "pair", "least"), [("bert", False, 3), ("bert", True, 5), ("roberta", True, 6)])
def test_rows_without_room_for_a_token_of_each_text_are_refused(name: str, pair: bool, least: int) -> None:
    ClassificationSamples(sample_spec(name), least, pair)
    with pytest.raises(ConfigError, match=rf"seq_len={least - 1} leaves no room for text: tokenizer {name} puts"):
        ClassificationSamples(sample_spec(name), least - 1, pair)


def with_template(spec: TokenizerSpec, pair: str) -> TokenizerSpec:
    """Return the spec with another template of pairs, as ``A:0 B:1``."""
    parsed = json.loads(spec.json)
    pieces = [piece.split(":") for piece in pair.split()]
    parsed["post_processor"]["pair"] = [
        {"Sequence": {"id": name, "type_id": int(kind)}}
        if name in "AB"
        else {"SpecialToken": {"id": name, "type_id": int(kind)}}
        for name, kind in pieces
    ]
    return replace(spec, json=json.dumps(parsed))


def test_a_post_processor_that_turns_texts_around_or_has_a_third_type_is_refused() -> None:
    spec = sample_spec("bert")
    with pytest.raises(ConfigError, match=r"does not write 2 text\(s\) once each, in their order"):
        ClassificationSamples(with_template(spec, "[CLS]:0 B:1 [SEP]:0 A:0"), 16, pair=True)
    with pytest.raises(ConfigError, match=r"does not write 2 text\(s\) once each"):
        ClassificationSamples(with_template(spec, "[CLS]:0 A:0 [SEP]:0 B:1 A:0"), 16, pair=True)
    with pytest.raises(ConfigError, match=r"uses the token types \[0, 1, 2\]"):
        ClassificationSamples(with_template(spec, "A:0 [SEP]:0 B:1 [SEP]:1 [CLS]:2"), 16, pair=True)
