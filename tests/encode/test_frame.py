"""The special tokens that an engine puts around a document."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.encode.fast import FastokensEngine
from streamfeed.encode.frame import Frame
from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.protocol import Encoded, Engine
from tests.encode.tokenizer_kinds import spec_of

EOS, BOS = 256, 257
DOCUMENTS = st.lists(st.lists(st.integers(0, 255), max_size=6), max_size=20)


@given(DOCUMENTS, st.sampled_from([None, BOS]))
def test_documents_that_hold_only_the_frame_lose_it_and_the_others_stay(
    documents: list[list[int]], bos: int | None
) -> None:
    begin = [] if bos is None else [bos]
    framed = [[*begin, *document, EOS] for document in documents]
    offsets = np.cumsum([0, *map(len, framed)], dtype=np.int64)
    left = Frame(bos, EOS).without_silent(Encoded(np.asarray(list(itertools.chain(*framed)), dtype=np.int32), offsets))
    found = [left.ids[a:b].tolist() for a, b in itertools.pairwise(left.offsets.tolist())]
    assert found == [whole if document else [] for whole, document in zip(framed, documents, strict=True)]
    assert left.ids.dtype == np.dtype(np.int32)
    assert left.offsets.dtype == np.dtype(np.int64)


@pytest.mark.parametrize("bos", [None, 7])
@pytest.mark.parametrize("build", [FastokensEngine, HuggingFaceEngine])
@pytest.mark.parametrize("own", ["none", "ByteLevel", "an EOS of its own"])
def test_the_frame_replaces_whatever_the_tokenizer_would_add(build: type[Engine], bos: int | None, own: str) -> None:
    spec = spec_of("gpt2_bpe")
    parsed = json.loads(spec.json)
    text, mark = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "e", "type_id": 0}}
    parsed["post_processor"] = {
        "none": None,
        "ByteLevel": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "an EOS of its own": {
            "type": "TemplateProcessing",
            "single": [text, mark],
            "pair": [text, mark],
            "special_tokens": {"e": {"id": "e", "ids": [spec.eos_id], "tokens": ["e"]}},
        },
    }[own]
    assert spec.eos_id is not None
    frame = Frame(bos, spec.eos_id)
    ids = build(json.dumps(parsed), frame).encode(["import os", "", "x"])  # type: ignore[call-arg]
    plain = build(spec.json, Frame(None, spec.eos_id)).encode(["import os", "x"])  # type: ignore[call-arg]
    begin = [] if bos is None else [bos]
    first, second = (plain.ids[a:b].tolist() for a, b in itertools.pairwise(plain.offsets.tolist()))
    assert ids.ids.tolist() == [*begin, *first, *begin, *second]
    assert first[-1] == spec.eos_id
    assert ids.offsets.tolist()[1] == ids.offsets.tolist()[2]
