"""A prompt and its completion: one behind the other, one EOS, the loss on the completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamfeed.encode.objectives.protocol import LOSS, Samples, counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.controls import ControlCounter
    from streamfeed.encode.frame import Frame
    from streamfeed.encode.protocol import Engine
    from streamfeed.objectives import PromptCompletion

__all__ = ["PromptCompletionSamples"]


class PromptCompletionSamples:
    """Encodes ``prompt`` and ``completion`` of records with ``engine``, which frames every text by ``frame``.

    The two are encoded apart, since a model that is asked for a completion sees the prompt's tokens alone. Labels are
    the completion's tokens and the EOS. A completion without tokens makes a sample without; a prompt may have none.
    ``counter`` counts the control strings in texts.
    """

    def __init__(
        self, settings: PromptCompletion, engine: Engine, frame: Frame, counter: ControlCounter | None = None
    ) -> None:
        self._all = settings.train_on == "all"
        self._engine = engine
        self._bos = 0 if frame.bos is None else 1
        self._counter = counter

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode records; flags are None where every token is a label."""
        texts = [text for record in records for text in (record["prompt"], record["completion"])]
        encoded = self._engine.encode(texts)
        begins, ends = encoded.offsets[:-1], encoded.offsets[1:]
        lengths = ends - begins
        prompts, completions = lengths[::2], lengths[1::2]
        kept = np.repeat(np.repeat(completions > 0, 2), lengths)
        prompted = (prompts > 0) & (completions > 0)
        kept[ends[::2][prompted] - 1] = False  # a prompt's EOS
        if self._bos:
            kept[begins[1::2][prompted]] = False  # a completion's BOS
        offsets = np.zeros(len(records) + 1, dtype=np.int64)
        np.cumsum(np.where(completions > 0, prompts + completions - prompted * (1 + self._bos), 0), out=offsets[1:])
        return Samples(
            encoded.ids[kept],
            offsets,
            None if self._all else self._flags(encoded.offsets, completions > 0)[kept],
            None,
            counted(2, controls=None if self._counter is None else self._counter.count(texts), long=encoded.long),
        )

    def _flags(self, offsets: NDArray[np.int64], answered: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Flag the tokens of all texts: those of completions, but for a BOS."""
        lengths = np.diff(offsets)
        flags = np.repeat(np.tile(np.asarray([0, LOSS], dtype=np.uint8), len(lengths) // 2), lengths)
        if self._bos:
            flags[offsets[1:-1:2][answered]] = 0
        return flags
