"""What an engine is: texts in, flat ids and offsets out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Encoded", "Engine"]


class Encoded(NamedTuple):
    """Ids of several texts: text ``i`` is ``ids[offsets[i]:offsets[i + 1]]``.

    ``ids`` is int32 of shape ``[tokens]``, ``offsets`` int64 of shape ``[texts + 1]``. A text that holds tokens has one
    EOS behind it, and a BOS before it where the tokenizer puts one there; control strings inside the texts are text.
    ``long``: int64 of shape ``[texts]``, 1 for those that were encoded in several parts; None where there is none.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    long: NDArray[np.int64] | None = None


class Engine(Protocol):
    """A tokenizer implementation; safe to call from one thread at a time."""

    @property
    def name(self) -> str:
        """``fastokens`` or ``huggingface``."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order. Raises :class:`~streamfeed.errors.EngineError` where a spot check fails."""
