"""Ids of texts alone, without any special tokens: what objectives with frames of their own start from."""

from __future__ import annotations

import json
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from streamfeed.encode.protocol import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["PlainEncoder"]


class PlainEncoder:
    """Encodes texts with Hugging Face ``tokenizers``, adding nothing; a control string inside a text is text."""

    name = "huggingface"

    def __init__(self, spec: TokenizerSpec) -> None:
        parsed = json.loads(spec.json)
        parsed["post_processor"] = None  # it adds special tokens and trims offsets: neither is wanted
        self._tokenizer = Tokenizer.from_str(json.dumps(parsed, ensure_ascii=False, separators=(",", ":")))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order; a text may have no tokens."""
        if not texts:
            return Encoded(np.empty(0, np.int32), np.zeros(1, np.int64))
        pieces = [
            np.array(encoding.ids, dtype=np.int32)
            for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        ]
        offsets = np.fromiter(accumulate(chain((0,), map(len, pieces))), dtype=np.int64, count=len(pieces) + 1)
        return Encoded(np.concatenate(pieces), offsets)
