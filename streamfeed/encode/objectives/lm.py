"""Next-token prediction: the ids of a text, framed by the engine; every token is a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfeed.encode.objectives.protocol import Samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.encode.protocol import Engine

__all__ = ["LmSamples"]


class LmSamples:
    """Encodes texts, alone or as the field ``text`` of records, with ``engine``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode records; see :class:`~streamfeed.encode.objectives.protocol.Objective`."""
        return self.encode_texts([record["text"] for record in records])

    def encode_texts(self, texts: Sequence[str]) -> Samples:
        """Encode texts."""
        encoded = self._engine.encode(texts)
        return Samples(encoded.ids, encoded.offsets)
