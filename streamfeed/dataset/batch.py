"""From rows to what a model takes: ids, labels and positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["IGNORED", "BatchArrays"]

IGNORED = -100
"""The label that losses ignore, by the convention of PyTorch and transformers."""


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """A batch being filled, ``[rows, seq_len]``, all int64: ``input_ids``, ``labels`` (not shifted) and ``position_ids``.

    Positions count from each document's piece; the first label of every piece is ignored, since nothing before it in
    the row may predict it. What pads a row is a piece without labels.
    """

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    position_ids: NDArray[np.int64]

    def put(self, place: slice | NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Copy rows, int32 ``[n, seq_len]``, to the batch rows ``place``."""
        self.input_ids[place] = rows

    def finish(self, lengths: NDArray[np.int32], starts: Sequence[NDArray[np.int64]], pad: int) -> None:
        """Derive labels and positions once all rows are in.

        ``lengths``: int32 ``[rows]``, what counts of each row. ``starts``: where documents start, as ``row * seq_len +
        column``, in any order; row starts need not be among them.
        """
        rows, seq_len = self.input_ids.shape
        total = rows * seq_len
        row_starts = np.arange(0, total, seq_len)
        partial = np.flatnonzero(lengths < seq_len)
        for row in partial.tolist():
            self.input_ids[row, lengths[row] :] = pad
        ends = partial * seq_len + lengths[partial]
        pieces = np.concatenate((row_starts, *starts, ends))
        pieces.sort()
        labels = self.labels.reshape(-1)
        labels[:] = self.input_ids.reshape(-1)
        labels[pieces] = IGNORED
        for row in partial.tolist():
            self.labels[row, lengths[row] :] = IGNORED
        positions = self.position_ids.reshape(-1)
        np.subtract(np.arange(total), np.repeat(pieces, np.diff(pieces, append=total)), out=positions)
