"""An engine that encodes what it has seen already from memory: oracles hand the same texts out again and again."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.encode.protocol import Encoded, Engine

__all__ = ["RememberingEngine"]

MOST = 1 << 13
"""How many lists of texts are remembered."""


class RememberingEngine:
    """Gives what ``engine`` gave for the same list of texts, as arrays that nobody can write to."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self._engine = engine
        self._remembered = lru_cache(MOST)(self._encode)

    def encode(self, texts: Sequence[str]) -> Encoded:
        return self._remembered(tuple(texts))

    def _encode(self, texts: tuple[str, ...]) -> Encoded:
        found = self._engine.encode(list(texts))
        for part in found:
            if isinstance(part, np.ndarray):
                part.flags.writeable = False
        return found
