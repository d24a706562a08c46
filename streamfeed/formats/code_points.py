"""Ids as the characters of a text, one each: so that what reads, windows and hashes texts does it with ids as well.

An id is the code point 256 above it, so that none is a control character or needs an escape in JSON; past the
surrogates 2,048 more, since those are no characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FIELD", "MOST_IDS", "ids_of", "text_of_ids"]

FIELD = "tokens"
"""The field of a record that holds its ids."""

_SHIFT = 0x100
_GAP, _GAP_END = 0xD800, 0xE000
MOST_IDS = 0x110000 - _SHIFT - (_GAP_END - _GAP)
"""Ids below this have a character."""


def text_of_ids(ids: NDArray[Any]) -> str:
    """Return ids, any unsigned dtype ``[tokens]`` and below :data:`MOST_IDS`, as a text of as many characters."""
    points = ids.astype(np.uint32)
    points += _SHIFT
    points[points >= _GAP] += _GAP_END - _GAP
    return points.tobytes().decode("utf-32-le")


def ids_of(text: str) -> NDArray[np.int32]:
    """Return the ids, int32 ``[tokens]``, that :func:`text_of_ids` made the text of."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.int32).copy()
    points[points >= _GAP_END] -= _GAP_END - _GAP
    points -= _SHIFT
    return points
