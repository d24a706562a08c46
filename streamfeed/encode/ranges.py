"""Many ranges of numbers as one array, to gather and scatter pieces of flat arrays at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ranges"]


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``starts[0]``, ``starts[0] + 1``, ... ``lengths[0]`` numbers, then those from ``starts[1]``, and so on."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    found: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    found += np.arange(total)
    return found
