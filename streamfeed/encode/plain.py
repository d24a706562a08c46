"""Ids of texts alone, without any special tokens: what objectives with frames of their own start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from tokenizers import Tokenizer

from streamfeed.encode.huggingface import ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.protocol import Encoded
    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["PlainEncoder"]


class PlainEncoder:
    """Encodes texts with Hugging Face ``tokenizers``, adding nothing; a control string inside a text is text."""

    name = "huggingface"

    def __init__(self, spec: TokenizerSpec) -> None:
        parsed = orjson.loads(spec.json)
        parsed["post_processor"] = None  # it adds special tokens and trims offsets: neither is wanted
        self._tokenizer = Tokenizer.from_str(orjson.dumps(parsed).decode())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order; a text may have no tokens."""
        return ids_of(self._tokenizer, texts, special_tokens=False)
