"""The fast engine: ``fastokens``, used only where :mod:`streamfeed.encode.proof` found its ids equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fastokens import Tokenizer

from streamfeed.encode.forking import no_fork
from streamfeed.encode.protocol import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.frame import Frame

__all__ = ["FastokensEngine"]


class FastokensEngine:
    """Encodes with ``fastokens``; releases the GIL while it does. Forks of this process wait meanwhile.

    Raises ``ValueError`` (of ``fastokens``) where it cannot build the tokenizer. ``ids`` and ``offsets`` are read-only
    views of the buffers that fastokens filled: nothing is copied.
    """

    name = "fastokens"

    def __init__(self, spec_json: str, frame: Frame) -> None:
        self._tokenizer = Tokenizer.from_json_str(frame.into(spec_json))
        self._frame = frame
        self._no_fork = no_fork()

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order, each framed; texts without tokens have no ids."""
        if not texts:
            return Encoded(np.empty(0, np.int32), np.zeros(1, np.int64))
        with self._no_fork:
            ids, offsets = self._tokenizer.encode_batch_flat(
                texts if isinstance(texts, list) else list(texts), add_special_tokens=True, split_special_tokens=True
            )
        # Ids and offsets are far below 2**31 and 2**63, so the unsigned bytes read as signed are the same numbers.
        return self._frame.without_silent(Encoded(np.frombuffer(ids, dtype="<i4"), np.frombuffer(offsets, dtype="<i8")))
