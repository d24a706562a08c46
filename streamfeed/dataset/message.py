"""A message: whole rounds of one worker's lanes, and the states before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffers", "Message", "rounds_in"]


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where a message's arrays are written; reused, in shared memory when it goes to another process.

    ``ids`` is int32 ``[rows, seq_len]``, ``lengths`` int32 ``[rows]``, ``starts`` int32
    ``[rows * (seq_len // 2 + 1)]``: a document has at least two tokens, so no row has more starts than that.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: NDArray[np.int32]

    @staticmethod
    def nbytes(rows: int, seq_len: int) -> int:
        """Return the bytes that buffers for ``rows`` rows take."""
        return 4 * (rows * seq_len + rows + rows * (seq_len // 2 + 1))

    @classmethod
    def over(cls, memory: memoryview, rows: int, seq_len: int) -> Buffers:
        """Lay the arrays out over ``memory``, of :meth:`nbytes` bytes."""
        flat = np.frombuffer(memory, dtype=np.int32)
        tokens = rows * seq_len
        return cls(flat[:tokens].reshape(rows, seq_len), flat[tokens : tokens + rows], flat[tokens + rows :])

    @classmethod
    def private(cls, rows: int, seq_len: int) -> Buffers:
        """Make buffers in this process's own memory."""
        return cls.over(memoryview(bytearray(cls.nbytes(rows, seq_len))), rows, seq_len)


@dataclass(frozen=True, slots=True)
class Message:
    """Rows in the order in which the rank hands them out, as views of :class:`Buffers`.

    ``ids``: int32 ``[rows, seq_len]``, of row ``i`` the first ``lengths[i]`` count (0: the lane has ended).
    ``starts``: int32, sorted, where documents start, as ``row * seq_len + column``; row starts need not be listed.
    ``states`` is the JSON of the lanes' states before the first row, by lane number. A message without rows is the
    last: every lane has ended, and ``states`` is where.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: NDArray[np.int32]
    states: bytes


def rounds_in(nbytes: int, rows: int, seq_len: int) -> int:
    """Return how many rounds of ``rows`` rows fill about ``nbytes``, at least one."""
    return max(1, nbytes // (4 * rows * seq_len))
