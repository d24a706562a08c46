"""Masked language modelling: a text in the tokenizer's own special tokens; what is masked is decided later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamfeed.encode.long import InParts
from streamfeed.encode.objectives.protocol import Samples, counted
from streamfeed.encode.own_frame import OwnFrame
from streamfeed.encode.plain import PlainEncoder
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.encode.objectives.classification import Controls
    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["MlmSamples"]


class MlmSamples:
    """Encodes texts whole; those that hold no tokens have none, not even special ones.

    Always with Hugging Face ``tokenizers``. ``controls`` counts the control strings in texts, which stay text. Raises
    :class:`~streamfeed.errors.ConfigError` where the tokenizer has no mask token.
    """

    def __init__(self, spec: TokenizerSpec, controls: Controls | None = None) -> None:
        if spec.mask_id is None:
            raise ConfigError(
                f"masked language modelling needs a mask token, and tokenizer {spec.name} has none; use the tokenizer "
                'of such a model, or set one where the tokenizer is made (tokenizer.mask_token = "<mask>")'
            )
        self._frame = OwnFrame.of(spec, 1)
        self._encoder = InParts(PlainEncoder(spec), None)
        self._controls = controls

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode records; see :class:`~streamfeed.encode.objectives.protocol.Objective`."""
        return self.encode_texts([record["text"] for record in records])

    def encode_texts(self, texts: Sequence[str]) -> Samples:
        """Encode texts."""
        encoded = self._encoder.encode(texts)
        lengths = np.diff(encoded.offsets)
        spoken = lengths > 0
        framed = self._frame.around(encoded.ids, [(encoded.offsets[:-1][spoken], lengths[spoken])])
        offsets = np.zeros_like(encoded.offsets)
        np.cumsum(np.where(spoken, lengths + self._frame.specials, 0), out=offsets[1:])
        controls = None if self._controls is None else self._controls.count(texts)
        return Samples(framed.ids, offsets, counts=counted(1, controls=controls, long=encoded.long))
