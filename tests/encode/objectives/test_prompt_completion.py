"""Prompts and completions: encoded apart, framed once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from streamfeed.encode.controls import ControlCounter
from streamfeed.encode.frame import Frame
from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.objectives.prompt_completion import PromptCompletionSamples
from streamfeed.encode.objectives.protocol import LOSS, Samples
from streamfeed.encode.tokenizer import TokenizerSpec
from streamfeed.objectives import PromptCompletion
from tests.tokenizers_for_tests import bpe_json

BOS, EOS_ID = 5, 0
DTYPES = ("int32", "int64", "uint8")
ENGINES = {bos: HuggingFaceEngine(bpe_json(), Frame(bos, EOS_ID)) for bos in (None, BOS)}
TOKENIZER = Tokenizer.from_str(bpe_json())
TOKENIZER.encode_special_tokens = True
TEXTS = ["", "Q: 1 + 1?\nA:", " 2", "hello world", "<|endoftext|>", "é👩‍🚀\n"]


def encode(pairs: list[tuple[str, str]], bos: int | None, counter: Any = None, **options: Any) -> Samples:
    objective = PromptCompletionSamples(PromptCompletion(**options), ENGINES[bos], Frame(bos, EOS_ID), counter=counter)
    return objective.encode([{"prompt": prompt, "completion": completion} for prompt, completion in pairs])


def tokens(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("bos", [None, BOS])
@given(pairs=st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_a_sample_is_the_prompts_tokens_and_the_completions_framed_once(
    bos: int | None, pairs: list[tuple[str, str]]
) -> None:
    labelled, whole = encode(pairs, bos), encode(pairs, bos, train_on="all")
    assert labelled.flags is not None
    assert whole.flags is None
    assert whole.ids.tolist() == labelled.ids.tolist()
    assert (labelled.ids.dtype.name, labelled.offsets.dtype.name, labelled.flags.dtype.name) == DTYPES
    assert len(labelled.offsets) == len(pairs) + 1
    for i, (prompt, completion) in enumerate(pairs):
        own = slice(labelled.offsets[i], labelled.offsets[i + 1])
        before = [*([] if bos is None else [bos]), *tokens(prompt)]
        after = [*tokens(completion), EOS_ID]
        silent = not completion
        assert labelled.ids[own].tolist() == ([] if silent else before + after)
        assert labelled.flags[own].tolist() == ([] if silent else [0] * len(before) + [LOSS] * len(after))


def test_control_strings_are_counted_by_sample_where_a_counter_is_given() -> None:
    counter = ControlCounter(TokenizerSpec(bpe_json(), "", EOS_ID, None, None, 1000, "bpe"))
    made = encode([("<|endoftext|>", "a<|endoftext|>"), ("b", "c"), ("d", "<|endoftext|>")], None, counter)
    assert made.counts["controls"].tolist() == [2, 0, 1]
    assert encode([("b", "c")], None, counter).counts == {}
    assert made.ids.tolist().count(EOS_ID) == 3
