"""The reference engine: Hugging Face ``tokenizers``."""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from streamfeed.encode.protocol import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.frame import Frame

__all__ = ["HuggingFaceEngine", "ids_of"]


class HuggingFaceEngine:
    """Encodes with ``tokenizers``; what it gives is right by definition.

    Raises :class:`Exception` of ``tokenizers`` where the JSON is no tokenizer.
    """

    name = "huggingface"

    def __init__(self, spec_json: str, frame: Frame) -> None:
        self._tokenizer = Tokenizer.from_str(frame.into(spec_json))
        self._frame = frame
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # a control string inside a text is text

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order, each framed; texts without tokens have no ids."""
        return self._frame.without_silent(ids_of(self._tokenizer, texts, special_tokens=True))


def ids_of(tokenizer: Tokenizer, texts: Sequence[str], *, special_tokens: bool) -> Encoded:
    """Encode texts in order, with the special tokens of the post-processor or without."""
    if not texts:
        return Encoded(np.empty(0, np.int32), np.zeros(1, np.int64))
    # Each read of .ids makes a list of Python integers, so each is read once and let go of as it is copied.
    pieces = [
        np.array(encoding.ids, dtype=np.int32)
        for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
    ]
    offsets = np.fromiter(accumulate(chain((0,), map(len, pieces))), dtype=np.int64, count=len(pieces) + 1)
    return Encoded(np.concatenate(pieces), offsets)
