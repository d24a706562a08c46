"""The special tokens around a document, put there by the engine itself.

An engine that adds them as it writes the ids saves a copy of all ids. So its tokenizer gets a post-processor of ours in
the place of its own, which could add none, other ones, or two: post-processors decide nothing else about ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson

from streamfeed.encode.protocol import Encoded

__all__ = ["Frame"]


@dataclass(frozen=True, slots=True)
class Frame:
    """``bos`` (or none) before a document, ``eos`` behind it; a document without tokens stays without."""

    bos: int | None
    eos: int

    def into(self, spec_json: str) -> str:
        """Return the JSON of the tokenizer that encodes as ``spec_json`` does and frames every text."""
        parsed = orjson.loads(spec_json)
        tokens = {"eos": self.eos} if self.bos is None else {"bos": self.bos, "eos": self.eos}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        marks = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in tokens}
        single = [*([marks["bos"]] if "bos" in marks else []), text, marks["eos"]]
        parsed["post_processor"] = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [token], "tokens": [name]} for name, token in tokens.items()},
        }
        return orjson.dumps(parsed).decode()

    def without_silent(self, encoded: Encoded) -> Encoded:
        """Return ``encoded`` with no tokens for the texts that hold none but the frame's."""
        frame = 1 if self.bos is None else 2
        lengths = np.diff(encoded.offsets)
        silent = lengths <= frame
        if not silent.any():
            return encoded
        offsets = np.zeros_like(encoded.offsets)
        np.cumsum(np.where(silent, 0, lengths), out=offsets[1:])
        return Encoded(encoded.ids[np.repeat(~silent, lengths)], offsets)
