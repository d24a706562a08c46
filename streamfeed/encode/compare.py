"""Where the ids of two engines differ, said so that someone can report it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.encode.protocol import Encoded

__all__ = ["document_ids", "first_difference"]


def document_ids(encoded: Encoded, index: int) -> NDArray[np.int32]:
    """Return the ids of document ``index``: int32 of shape ``[tokens of the document]``."""
    return encoded.ids[encoded.offsets[index] : encoded.offsets[index + 1]]


def first_difference(text: str, fast: NDArray[np.int32], reference: NDArray[np.int32], around: int = 4) -> str | None:
    """Say where two engines' ids of one text part, with ``around`` ids on each side; None where they are equal."""
    if np.array_equal(fast, reference):
        return None
    common = min(len(fast), len(reference))
    unequal = np.flatnonzero(fast[:common] != reference[:common])
    at = int(unequal[0]) if len(unequal) else common
    window = slice(max(0, at - around), at + around + 1)
    return (
        f"ids differ from index {at} on: fastokens {fast[window].tolist()} of {len(fast)} ids, "
        f"Hugging Face {reference[window].tolist()} of {len(reference)} ids, "
        f"in a text of {len(text)} characters that starts {text[:60]!r}"
    )
