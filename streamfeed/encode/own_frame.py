"""The special tokens that a tokenizer's own post-processor puts around one text, or around two.

BERT's writes [CLS] A [SEP] B [SEP], RoBERTa's <s> A </s></s> B </s>, GPT-2's adds nothing. It is asked once, and what
it said is then written around all samples at once. Post-processors see ids alone, never the text, so this is exact.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import orjson

from streamfeed.encode.ranges import ranges
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["Framed", "OwnFrame"]


@dataclass(frozen=True, slots=True)
class Framed:
    """Samples: ids int32 ``[tokens]``, token types uint8 ``[tokens]``, and int64 offsets ``[samples + 1]``."""

    ids: NDArray[np.int32]
    types: NDArray[np.uint8]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OwnFrame:
    """What stands before, between and behind the texts of a sample.

    ``marks``: before the first text, behind it, and so on, (id, token type) of each special token; one group more than
    there are texts. ``types``: the token type of each text.
    """

    marks: tuple[tuple[tuple[int, int], ...], ...]
    types: tuple[int, ...]

    @classmethod
    def of(cls, spec: TokenizerSpec, texts: int) -> OwnFrame:
        """Return the frame of ``texts`` (1 or 2) texts.

        Raises :class:`~streamfeed.errors.ConfigError` where the post-processor leaves one out or turns them around.
        """
        from tokenizers import Tokenizer

        encoding = Tokenizer.from_str(_probe(spec)).encode("a", "a" if texts == 2 else None)
        marks: list[list[tuple[int, int]]] = [[]]
        types: list[int] = []
        for token, kind, text in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
            if text is None:
                marks[-1].append((token, kind))
            elif text == len(types):
                marks.append([])
                types.append(kind)
            else:
                break
        if len(types) != texts or len(encoding.ids) != texts + sum(map(len, marks)):
            raise ConfigError(
                f"tokenizer {spec.name}: its post-processor does not write {texts} text(s) once each, in their order "
                f"(it gives texts {encoding.sequence_ids}); give its tokenizer.json one that does"
            )
        return cls(tuple(map(tuple, marks)), tuple(types))

    @property
    def specials(self) -> int:
        """The number of special tokens that a sample has."""
        return sum(map(len, self.marks))

    def around(self, ids: NDArray[np.int32], texts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Framed:
        """Frame ``n`` samples.

        ``texts``: for each text of a sample, where it starts in ``ids`` and its length, int64 ``[n]`` each.
        """
        lengths = sum((length for _, length in texts), np.full(len(texts[0][0]), self.specials, dtype=np.int64))
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        framed = Framed(np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.uint8), offsets)
        place = offsets[:-1].copy()
        for index, marks in enumerate(self.marks):
            for token, kind in marks:
                framed.ids[place] = token
                framed.types[place] = kind
                place += 1
            if index < len(texts):
                starts, length = texts[index]
                target = ranges(place, length)
                framed.ids[target] = ids[ranges(starts, length)]
                framed.types[target] = self.types[index]
                place += length
        return framed


def _probe(spec: TokenizerSpec) -> str:
    """Return the JSON of a tokenizer with this post-processor that makes one token of any text."""
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": None,
            "post_processor": orjson.loads(spec.json).get("post_processor"),
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        }
    )
