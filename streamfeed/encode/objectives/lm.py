"""Next-token prediction: the ids of a text, framed by the engine; every token is a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamfeed.encode.objectives.protocol import Samples, counted
from streamfeed.formats.code_points import FIELD, ids_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.encode.controls import ControlCounter
    from streamfeed.encode.protocol import Engine

__all__ = ["LmSamples"]


class LmSamples:
    """Encodes texts, alone or as the field ``text`` of records, with ``engine``.

    ``controls`` counts the control strings in texts, which stay text. A record with the field ``tokens`` was encoded
    before: its ids are taken as they are.
    """

    def __init__(self, engine: Engine, controls: ControlCounter | None = None) -> None:
        self._engine = engine
        self._controls = controls

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode records; see :class:`~streamfeed.encode.objectives.protocol.Objective`."""
        if records and FIELD in records[0]:
            return _encoded([record[FIELD] for record in records])
        return self.encode_texts([record["text"] for record in records])

    def encode_texts(self, texts: Sequence[str]) -> Samples:
        """Encode texts."""
        encoded = self._engine.encode(texts)
        controls = None if self._controls is None else self._controls.count(texts)
        return Samples(encoded.ids, encoded.offsets, counts=counted(1, controls=controls, long=encoded.long))


def _encoded(documents: Sequence[str]) -> Samples:
    """Return documents of ids as samples."""
    offsets = np.zeros(len(documents) + 1, dtype=np.int64)
    np.cumsum([len(document) for document in documents], out=offsets[1:])
    return Samples(ids_of("".join(documents)), offsets)
