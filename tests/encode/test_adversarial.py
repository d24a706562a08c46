from __future__ import annotations

import json
import unicodedata

from streamfeed.encode.adversarial import documents
from streamfeed.encode.code_points import SPACES, scripts, sweep
from tests.tokenizers_for_tests import EOS, bpe_json


def test_the_set_is_the_same_at_every_making_and_holds_only_encodable_text() -> None:
    first = documents(bpe_json())
    assert first == documents(bpe_json())
    assert 4_000_000 < sum(len(text.encode("utf-8")) for text in first) < 12_000_000


def test_single_documents_reach_from_20_kb_to_2_mb() -> None:
    sizes = sorted(len(text.encode()) for text in documents(bpe_json()))[-8:]
    assert sizes[0] < 34_000
    assert sizes[-1] >= 2_000_000


def test_every_assigned_code_point_is_in_the_sweep() -> None:
    seen = set("".join(sweep()))
    private_or_surrogate = {"Cn", "Co", "Cs"}
    missing = [
        c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in private_or_surrogate and c not in seen
    ]
    assert missing == []


def test_every_white_space_and_script_is_there() -> None:
    assert all(c in SPACES for c in map(chr, range(0x110000)) if c.isspace())
    assert {"LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "THAI", "HANGUL", "HIRAGANA", "CJK", "ADLAM"} <= set(scripts())


def test_control_strings_of_the_tokenizer_are_there_whole_cut_and_inside_words() -> None:
    texts = documents(bpe_json())
    assert EOS in texts
    assert any(f"a{EOS}b" in text and f"|{EOS[:-1]}|" in text for text in texts)


def test_tokenizers_without_vocabulary_or_added_tokens_have_a_set_too() -> None:
    assert len(documents(json.dumps({"model": {"type": "Unigram", "vocab": [["▁a", -1.0]]}}))) > 500
