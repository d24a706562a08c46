"""From rows to what a model takes: ids, labels and positions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.encode.objectives.protocol import LOSS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["IGNORED", "BatchArrays"]

IGNORED = -100
"""The label that losses ignore, by the convention of PyTorch and transformers."""


FEW_TOKENS = 256
"""Where pieces have more tokens than this on average, filling positions piece by piece is the cheaper way."""


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """A batch being filled, ``[rows, seq_len]``, all int64: ``input_ids``, ``labels`` (not shifted), ``position_ids``.

    ``flags`` (uint8, of the same shape) and ``values`` (int64 ``[rows]``) are there where the objective has them: a
    token whose flags lack :data:`~streamfeed.encode.objectives.protocol.LOSS` is no label. Positions count from each
    document's piece; the first label of every piece is ignored, since nothing before it in the row may predict it. What
    pads a row is a piece without labels.
    """

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    flags: NDArray[np.uint8] | None = field(default=None, kw_only=True)
    values: NDArray[np.int64] | None = field(default=None, kw_only=True)

    def rows(self, first: int, stop: int) -> BatchArrays:
        """Return rows ``first`` to ``stop - 1``, as views."""
        own = slice(first, stop)
        return BatchArrays(
            self.input_ids[own],
            self.labels[own],
            self.position_ids[own],
            flags=None if self.flags is None else self.flags[own],
            values=None if self.values is None else self.values[own],
        )

    def put(
        self,
        place: slice | NDArray[np.int64],
        rows: NDArray[np.int32],
        flags: NDArray[np.uint8] | None = None,
        values: NDArray[np.int64] | None = None,
    ) -> None:
        """Copy rows, int32 ``[n, seq_len]``, to the batch rows ``place``; with their flags and values, if any."""
        self.input_ids[place] = rows
        if self.flags is not None and flags is not None:
            self.flags[place] = flags
        if self.values is not None and values is not None:
            self.values[place] = values

    def finish(self, lengths: NDArray[np.int32], starts: Sequence[NDArray[np.int64]], pad: int) -> NDArray[np.int64]:
        """Derive labels and positions once all rows are in; return where pieces begin, sorted, as ``starts`` are.

        Those are the starts, the rows' own, and what pads a row; some may be there twice. ``lengths``: int32
        ``[rows]``, what counts of each row. ``starts``: where documents start, as ``row * seq_len + column``, in any
        order; row starts need not be among them.
        """
        rows, seq_len = self.input_ids.shape
        total = rows * seq_len
        partial = [row for row, length in enumerate(lengths.tolist()) if length < seq_len]
        for row in partial:
            self.input_ids[row, lengths[row] :] = pad
        parts = [np.arange(0, total, seq_len), *starts]
        if partial:
            parts.append(np.asarray([row * seq_len + int(lengths[row]) for row in partial]))
        pieces = np.concatenate(parts)
        pieces.sort()
        labels = self.labels.reshape(-1)
        labels[:] = self.input_ids.reshape(-1)
        if self.flags is not None:
            labels[(self.flags.reshape(-1) & LOSS) == 0] = IGNORED
        labels[pieces] = IGNORED
        for row in partial:
            self.labels[row, lengths[row] :] = IGNORED
        if len(pieces) * FEW_TOKENS < total:
            _count_piece_by_piece(pieces, self.position_ids)
        else:
            _count_at_once(pieces, self.position_ids)
        if self.values is not None:
            self.values[lengths == 0] = IGNORED
        return pieces


def _count_piece_by_piece(pieces: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
    """Fill ``positions``, ``[rows, seq_len]``, with 0, 1, 2, ... from each of ``pieces`` on, row starts included."""
    # By views of bytes: they cost a quarter of what numpy's slices do, of which there are two for every piece.
    counts = _counts(positions.shape[1]).view(np.uint8).data
    flat = positions.reshape(-1).view(np.uint8).data
    bounds = (pieces * positions.itemsize).tolist()
    bounds.append(len(flat))
    for begin, end in itertools.pairwise(bounds):
        flat[begin:end] = counts[: end - begin]


def _count_at_once(pieces: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
    """As :func:`_count_piece_by_piece`, at a price that does not depend on the number of pieces."""
    total = positions.size
    lengths = np.empty_like(pieces)
    np.subtract(pieces[1:], pieces[:-1], out=lengths[:-1])
    lengths[-1] = total - pieces[-1]
    np.subtract(np.arange(total), np.repeat(pieces, lengths), out=positions.reshape(-1))


@lru_cache(maxsize=4)
def _counts(seq_len: int) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... as a read-only array: every batch needs the same one."""
    counts = np.arange(seq_len)
    counts.flags.writeable = False
    return counts
