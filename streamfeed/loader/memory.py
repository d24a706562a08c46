"""Memory for batches that is taken again once nobody holds the batch any more.

Fresh memory for every batch costs more than filling it: the kernel hands it out zeroed, page by page. A batch still
owns its memory: it is only taken again when no tensor, view or array of it is left, which reference counts say exactly.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import torch

from streamfeed.dataset.batch import BatchArrays

__all__ = ["Batch", "BatchMemory"]

Batch = dict[str, torch.Tensor]

KEPT = 4
"""Pieces of memory kept to be taken again; trainers that hold more batches get fresh memory for them."""

IDLE_REFERENCES = 3
"""References to an array that no tensor uses: the list's, the loop variable's, and the argument of getrefcount."""


class Slot(NamedTuple):
    """A batch to fill and hand out: ``arrays`` write to the memory of ``batch``."""

    arrays: BatchArrays
    batch: Batch


class BatchMemory:
    """Hands out batches: three int64 tensors ``[rows, seq_len]`` each, contents undefined."""

    def __init__(self, rows: int, seq_len: int) -> None:
        self._shape = (3, rows, seq_len)
        self._pieces: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []

    def take(self) -> Slot:
        """Return memory that nobody else holds."""
        for piece in self._pieces:
            if sys.getrefcount(piece) <= IDLE_REFERENCES:
                return _slot(piece)
        piece = np.empty(self._shape, dtype=np.int64)
        if len(self._pieces) < KEPT:
            self._pieces.append(piece)
        return _slot(piece)


def _slot(piece: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Slot:
    # The arrays are views made through the tensor, so that they too count as holders of the memory.
    tensor = torch.from_numpy(piece)
    ids, labels, positions = tensor.unbind()
    whole = tensor.numpy()
    batch = {"input_ids": ids, "labels": labels, "position_ids": positions}
    return Slot(BatchArrays(whole[0], whole[1], whole[2]), batch)
