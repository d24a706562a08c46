"""Memory for batches that is taken again once nobody holds the batch any more.

Fresh memory for every batch costs more than filling it: the kernel hands it out zeroed, page by page. A batch still
owns its memory: it is only taken again when no tensor, view or array of it is left, which reference counts say exactly.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from streamfeed.dataset.batch import BatchArrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Batch", "BatchMemory"]

Batch = dict[str, torch.Tensor]

KEPT = 4
"""Pieces of memory kept to be taken again; trainers that hold more batches get fresh memory for them."""


class Slot(NamedTuple):
    """Batches to fill and hand out: ``arrays`` write to the memory of all ``batches``, one behind the other."""

    arrays: BatchArrays
    batches: list[Batch]


class BatchMemory:
    """Hands out ``count`` batches of ``rows`` rows of ``seq_len`` tokens at a time.

    Each is three int64 tensors ``[rows, seq_len]``, contents undefined. ``pieces``: memory to use, tensors of
    :meth:`shape`; fresh memory then serves only while batches in all of them are held, and is not kept.
    """

    def __init__(self, rows: int, seq_len: int, count: int = 1, pieces: Sequence[torch.Tensor] = ()) -> None:
        self._shape = self.shape(rows, seq_len, count)
        self._pieces: list[NDArray[np.int64]] = [piece.numpy() for piece in pieces]
        self._most = len(pieces) or KEPT
        # What an array that no tensor uses shows is another number in another Python, so it is measured.
        self._idle = _references([np.empty(0, dtype=np.int64)])[0]

    @staticmethod
    def shape(rows: int, seq_len: int, count: int) -> tuple[int, ...]:
        """Return the shape of a piece, which is int64."""
        return (3, count, rows, seq_len)

    def take(self) -> Slot:
        """Return memory that nobody else holds."""
        for piece, references in zip(self._pieces, _references(self._pieces), strict=True):
            if references <= self._idle:
                return _slot(piece)
        piece = np.empty(self._shape, dtype=np.int64)
        if len(self._pieces) < self._most:
            self._pieces.append(piece)
        return _slot(piece)


def _references(pieces: list[NDArray[np.int64]]) -> list[int]:
    return [sys.getrefcount(piece) for piece in pieces]


def _slot(piece: NDArray[np.int64]) -> Slot:
    # The arrays are views made through the tensor, so that they too count as holders of the memory.
    tensor = torch.from_numpy(piece)
    whole = tensor.numpy().reshape(3, -1, piece.shape[-1])
    parts = tensor.flatten(0, 1).unbind(0)  # in one call: each costs microseconds
    count = piece.shape[1]
    batches = [
        {"input_ids": ids, "labels": labels, "position_ids": positions}
        for ids, labels, positions in zip(parts[:count], parts[count : 2 * count], parts[2 * count :], strict=True)
    ]
    return Slot(BatchArrays(whole[0], whole[1], whole[2]), batches)
