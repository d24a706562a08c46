"""Texts for masked language modelling: whole, in the tokenizer's own special tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.encode.objectives.build import verdict_for
from streamfeed.encode.objectives.mlm import MlmSamples
from streamfeed.encode.objectives.protocol import TextObjective
from streamfeed.errors import ConfigError
from streamfeed.objectives import Mlm
from tests.encode.sample_tokenizers import loaded, sample_spec, samples_of
from tests.tokenizers_for_tests import standard_library_texts

PIECES = ["import", " os", "\n", "Café", " 東京", "  ", "[MASK]", "<mask>", "</s>", "\u200b", "unlikeliest"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.mark.parametrize("name", ["bert", "roberta"])
@given(texts=st.lists(TEXTS, max_size=6))
def test_texts_have_the_ids_of_transformers_and_those_without_tokens_have_none(name: str, texts: list[str]) -> None:
    samples = MlmSamples(sample_spec(name)).encode_texts(texts)
    tokenizer = loaded(name)
    bare = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    whole = [list(tokenizer(text)["input_ids"]) if ids else [] for text, ids in zip(texts, bare, strict=True)]
    assert samples_of(samples) == whole
    assert samples.ids.dtype == np.int32
    assert samples.offsets.dtype == np.int64
    assert samples.flags is None
    assert samples.values is None


def test_a_long_text_is_not_truncated() -> None:
    text = standard_library_texts()[0]
    tokenizer = loaded("bert")
    assert samples_of(MlmSamples(sample_spec("bert")).encode([{"text": text}])) == [list(tokenizer(text)["input_ids"])]


def test_it_takes_texts_without_records_around_them() -> None:
    assert isinstance(MlmSamples(sample_spec("bert")), TextObjective)


def test_a_mask_inside_a_text_is_text_and_counted() -> None:
    class Counter:
        def count(self, texts: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.asarray([text.count("[MASK]") for text in texts], dtype=np.int64)

    spec = sample_spec("bert")
    samples = MlmSamples(spec, Counter()).encode_texts(["a [MASK] b", ""])  # type: ignore[arg-type]
    assert samples.counts["controls"].tolist() == [1, 0]
    assert spec.mask_id not in samples.ids


def test_a_tokenizer_without_a_mask_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="tokenizer bert has none; use the tokenizer of such a model"):
        MlmSamples(replace(sample_spec("bert"), mask_id=None))


def test_whole_words_of_a_vocabulary_that_marks_none_are_refused_before_anything_is_read() -> None:
    spec = sample_spec("roberta")
    model = {"type": "WordLevel", "vocab": {"a": 5, "<mask>": 4}, "unk_token": "a"}
    unmarked = replace(spec, json=json.dumps({**json.loads(spec.json), "model": model}))
    assert verdict_for(Mlm(), unmarked, 32, None).engine == "huggingface"
    with pytest.raises(ConfigError, match="marks none: set whole_word=False"):
        verdict_for(Mlm(whole_word=True), unmarked, 32, None)
