"""What every objective makes of records: ids, and what the loss needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LOSS", "SECOND", "Objective", "Samples", "TextObjective", "counted"]

LOSS = 1
"""Flag of a token: it is a label."""

SECOND = 2
"""Flag of a token: it is of the second text of a pair (token type 1)."""


@dataclass(slots=True)
class Samples:
    """One sample for each record, maybe of no tokens.

    ``ids``: int32 ``[tokens]``, sample ``i`` is ``ids[offsets[i]:offsets[i + 1]]``; ``offsets``: int64 ``[samples +
    1]``. ``flags``: uint8 ``[tokens]``, of :data:`LOSS` and :data:`SECOND`; None where every token is a label.
    ``values``: int64 ``[samples]``, one number a sample (its class), None where there is none. ``counts``: by the name
    of a :class:`~streamfeed.stats.Tally` field, int64 ``[samples]``, how much each sample adds to it; only those with
    anything.
    """

    ids: NDArray[Any]
    offsets: NDArray[Any]
    flags: NDArray[Any] | None = None
    values: NDArray[Any] | None = None
    counts: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def counted(texts: int, **counts: NDArray[np.int64] | None) -> dict[str, NDArray[np.int64]]:
    """Return ``counts`` of samples from those of their texts, ``texts`` each, one behind the other.

    Those that are None, since there is nothing to count, are left out.
    """
    return {
        name: found if texts == 1 else found.reshape(-1, texts).sum(axis=1)
        for name, found in counts.items()
        if found is not None
    }


class Objective(Protocol):
    """Turns records into samples; a pure function of the records."""

    def encode(self, records: Sequence[Mapping[str, Any]]) -> Samples:
        """Encode what :meth:`streamfeed.formats.shape.Shape.pick` gave of records, in order."""


@runtime_checkable
class TextObjective(Objective, Protocol):
    """An objective of one text a record, which takes texts without records around them."""

    def encode_texts(self, texts: Sequence[str]) -> Samples:
        """Encode texts, in order."""
