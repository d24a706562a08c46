"""Classification: one sample a record, of one text or two, with a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamfeed.encode.long import InParts
from streamfeed.encode.objectives.protocol import SECOND, Samples
from streamfeed.encode.own_frame import OwnFrame
from streamfeed.encode.plain import PlainEncoder
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["ClassificationSamples", "Controls", "longest_first"]


class Controls(Protocol):
    """Counts control strings inside texts."""

    def count(self, texts: Sequence[str]) -> NDArray[Any] | None:
        """Return the number in each text, int64 ``[texts]``; None where there is none."""


class ClassificationSamples:
    """Encodes ``text`` (and ``text_pair``) as the tokenizer itself frames them, truncated to ``seq_len``.

    Ids and token types are those of ``tokenizer(texts, pairs, truncation=True, max_length=seq_len)`` in transformers,
    cut on the right, where no text holds a control string: those stay text here, and ``controls`` counts them. A text
    without tokens is a sample as long as the tokenizer adds special ones. ``flags`` are None unless the texts are pairs
    and the model takes token types. Raises :class:`~streamfeed.errors.ConfigError` where ``seq_len`` leaves no room for
    a token of each text, and where the tokenizer uses token types other than 0 for one text, 0 and 1 for two.
    """

    def __init__(self, spec: TokenizerSpec, seq_len: int, pair: bool, controls: Controls | None = None) -> None:
        self._frame = OwnFrame.of(spec, 2 if pair else 1)
        self._pair = pair
        self._room = seq_len - self._frame.specials
        if self._room < len(self._frame.types):
            raise ConfigError(
                f"seq_len={seq_len} leaves no room for text: tokenizer {spec.name} puts {self._frame.specials} special "
                f"tokens around a sample of {len(self._frame.types)} text(s)"
            )
        kinds = {kind for marks in self._frame.marks for _, kind in marks} | {*self._frame.types}
        if spec.type_ids and not kinds <= ({0, 1} if pair else {0}):
            raise ConfigError(
                f"tokenizer {spec.name} uses the token types {sorted(kinds)} for {len(self._frame.types)} text(s); "
                "only 0, and 1 for the second of two texts, can be told"
            )
        self._has_flags = spec.type_ids and pair
        self._encoder = InParts(PlainEncoder(spec), None)
        self._controls = controls

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode records; see :class:`~streamfeed.encode.objectives.protocol.Objective`."""
        count = len(records)
        texts = [record["text"] for record in records]
        if self._pair:
            texts += [record["text_pair"] for record in records]
        encoded = self._encoder.encode(texts)
        starts = encoded.offsets[:-1].reshape(len(self._frame.types), count)
        lengths = np.diff(encoded.offsets).reshape(len(self._frame.types), count)
        kept = longest_first(lengths[0], lengths[1], self._room) if self._pair else np.minimum(lengths, self._room)
        framed = self._frame.around(encoded.ids, list(zip(starts, kept, strict=True)))
        truncated = (kept != lengths).any(axis=0).astype(np.int64)
        return Samples(
            framed.ids,
            framed.offsets,
            flags=(framed.types * SECOND).astype(np.uint8) if self._has_flags else None,
            values=np.asarray([record["label"] for record in records], dtype=np.int64),
            counts={
                **({"truncated": truncated} if truncated.any() else {}),
                **self._of_samples("controls", None if self._controls is None else self._controls.count(texts)),
                **self._of_samples("long", encoded.long),
            },
        )

    def _of_samples(self, name: str, found: NDArray[np.int64] | None) -> dict[str, NDArray[np.int64]]:
        """Return the counts of samples from those of their texts: all first ones, then all second ones."""
        return {} if found is None else {name: found.reshape(len(self._frame.types), -1).sum(axis=0)}


def longest_first(first: NDArray[np.int64], second: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """Return how much stays of pairs of texts of these lengths, int64 ``[2, pairs]``, so that a pair fits ``room``.

    The rule is that of Hugging Face ``tokenizers``: the longer text loses tokens until both are as long, then each has
    half; where ``room`` is odd, the one that was longer (the second of equals) has one more.
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    left = np.where(short + long > room, np.maximum(short, room - short), long)
    halved = short + left > room
    short = np.where(halved, room // 2, short)
    left = np.where(halved, room - room // 2, left)
    swapped = first > second
    return np.stack([np.where(swapped, left, short), np.where(swapped, short, left)])
