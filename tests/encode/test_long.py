"""Long documents in parts: the same ids wherever there is a place to cut, and a cost that grows with the size alone."""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.encode.fast import FastokensEngine
from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.long import InParts, parts_of
from streamfeed.encode.objectives.build import build_objective
from streamfeed.encode.plain import PlainEncoder
from streamfeed.encode.proof import Verdict
from streamfeed.objectives import Classification, Lm, Mlm, PromptCompletion
from tests.encode.sample_tokenizers import sample_spec
from tests.encode.tokenizer_kinds import spec_of
from tests.tokenizers_for_tests import standard_library_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.protocol import Encoded, Engine

KINDS = ("gpt2_bpe", "llama3_bpe", "sentencepiece_bpe", "metaspace_bpe", "word_piece", "unigram")
PROSE = "\n".join(standard_library_texts()[:3])
THAI = "ประเทศไทยเป็นรัฐชาติในภูมิภาคเอเชียตะวันออกเฉียงใต้"
CHINESE = "中国位于亚洲东部太平洋西岸。陆地面积约九百六十万平方公里。海域面积约四百七十三万。"


class Recorded:
    """An engine that keeps what it was asked to encode."""

    name = "recorded"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.texts += texts
        return self._engine.encode(texts)


def reference(kind: str) -> HuggingFaceEngine:
    spec = spec_of(kind)
    return HuggingFaceEngine(spec.json, spec.frame)


def in_parts(kind: str, long: int) -> InParts:
    return InParts(reference(kind), spec_of(kind).frame, long)


def documents(encoded: Encoded) -> list[list[int]]:
    return [encoded.ids[a:b].tolist() for a, b in itertools.pairwise(encoded.offsets.tolist())]


@pytest.mark.parametrize("kind", KINDS)
def test_prose_in_parts_has_the_ids_of_the_whole(kind: str) -> None:
    texts = ["first", PROSE, "", " ".join(PROSE.split()), "last"]
    parted = in_parts(kind, 5000).encode(texts)
    assert documents(parted) == documents(reference(kind).encode(texts))
    assert parted.long is not None
    assert parted.long.tolist() == [0, 1, 0, 1, 0]
    assert (parted.ids.dtype, parted.offsets.dtype) == (np.dtype(np.int32), np.dtype(np.int64))


def test_chinese_is_cut_behind_its_punctuation() -> None:
    texts = [CHINESE * 300]
    assert documents(in_parts("llama3_bpe", 5000).encode(texts)) == documents(reference("llama3_bpe").encode(texts))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["a" * 9000, THAI * 200, "👩‍👩‍👧" * 1500, "e\u0301\u0323" * 3000, " " * 9000])
def test_a_document_in_parts_has_one_frame_and_all_its_characters(kind: str, text: str) -> None:
    spec = spec_of(kind)
    recorded = Recorded(reference(kind))
    encoded = InParts(recorded, spec.frame, 2000).encode(["x", text, "y"])
    ids = documents(encoded)[1]
    if ids:
        assert ids[-1] == spec.eos_id
        assert ids.count(spec.eos_id or 0) == 1
    parts = [part for part in recorded.texts if len(part) > 1000]
    assert max(map(len, recorded.texts)) <= 2000
    assert sum(map(len, parts)) >= len(text) - 2000


def test_a_bos_stands_only_before_the_first_part() -> None:
    spec = spec_of("gpt2_bpe")
    frame = type(spec.frame)(7, spec.frame.eos)
    whole = HuggingFaceEngine(spec.json, frame)
    assert documents(InParts(whole, frame, 4000).encode([PROSE[:9000]])) == documents(whole.encode([PROSE[:9000]]))


def test_without_a_frame_nothing_is_added() -> None:
    plain = PlainEncoder(spec_of("word_piece"))
    assert documents(InParts(plain, None, 1000).encode([PROSE[:9000]])) == documents(plain.encode([PROSE[:9000]]))


def test_a_long_document_without_tokens_has_none() -> None:
    encoded = InParts(PlainEncoder(spec_of("word_piece")), None, 100).encode([" " * 1000, "a"])
    assert encoded.offsets.tolist()[:2] == [0, 0]
    assert encoded.long is not None
    assert encoded.long.tolist() == [1, 0]


def test_what_is_short_goes_through_as_it_is() -> None:
    recorded = Recorded(reference("gpt2_bpe"))
    encoded = InParts(recorded, spec_of("gpt2_bpe").frame, 10).encode(["0123456789", ""])
    assert recorded.texts == ["0123456789", ""]
    assert encoded.long is None


@pytest.mark.parametrize("settings", [Lm(), PromptCompletion(), Mlm(), Classification(text_pair="other", classes=2)])
def test_every_objective_of_texts_counts_its_long_ones(
    settings: Lm | PromptCompletion | Mlm | Classification, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InParts.__init__, "__defaults__", (1000,))
    spec = sample_spec("roberta")
    samples = build_objective(settings, spec, Verdict("huggingface", "a test"), seq_len=64).encode(
        [
            {"text": text, "prompt": text, "completion": text, "text_pair": text, "label": 0}
            for text in ("short", PROSE[:3000], "")
        ]
    )
    texts = 2 if isinstance(settings, PromptCompletion | Classification) else 1
    assert samples.counts["long"].tolist() == [0, texts, 0]


@settings(max_examples=40)
@given(st.text(st.sampled_from("ae\u0301\u200d👩🏽é1"), min_size=41, max_size=300))
def test_no_cut_parts_a_character_from_its_marks_where_another_place_is_near(text: str) -> None:
    plain = PlainEncoder(spec_of("gpt2_bpe"))
    start = 0
    for part in (text[begin:end] for begin, end in parts_of(text, lambda part: plain.encode([part]).ids, 40)):
        assert text.startswith(part, start)
        stop = start + len(part)
        allowed = [at for at in range(start + 36, start + 41) if re.match("[^\u200d][^\u0301\u200d🏽]", text[at - 1 :])]
        assert stop == len(text) or stop in allowed or not allowed
        start = stop
    assert start == len(text)


@pytest.mark.parametrize("build", [FastokensEngine, HuggingFaceEngine])
@pytest.mark.parametrize("text", ["a", "qzjxkvw", THAI], ids=["one letter", "letters", "Thai"])
def test_four_times_the_text_without_a_space_takes_no_more_than_twelve_times(build: type[Engine], text: str) -> None:
    spec = spec_of("llama3_bpe")
    engine = InParts(build(spec.json, spec.frame), spec.frame, 1 << 14)  # type: ignore[call-arg]

    def took(size: int) -> float:
        document = (text * (size // len(text) + 1))[:size]
        started = time.process_time()
        engine.encode([document])
        return time.process_time() - started

    took(1 << 14)
    assert min(took(1 << 18) for _ in range(2)) < 12 * min(took(1 << 16) for _ in range(2))
