"""A message: whole rounds of one worker's lanes, and the states before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.dataset.origins import Told

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.plan.plan import Rules

__all__ = ["Buffers", "Layout", "Message", "rounds_in"]


class Layout(NamedTuple):
    """What there is of a row: ``seq_len`` ids, at most ``starts`` document starts, flags, a value; and its origins."""

    seq_len: int
    starts: int
    flags: bool = False
    values: bool = False
    origins: bool = False

    @classmethod
    def of(cls, rules: Rules, *, origins: bool = False) -> Layout:
        """Return the layout of a stream's rows; ``origins``: it is told which records they are made of.

        End to end, documents that end by an EOS have at least two tokens, so no row has more starts than half of its
        tokens; others, and what is packed in pieces, may have one.
        """
        starts = rules.seq_len // 2 + 1 if rules.packing == "concat" and rules.eos else rules.seq_len
        starts = 0 if rules.packing == "none" else starts
        return cls(rules.seq_len, starts, rules.flags, rules.values, origins)

    @property
    def words(self) -> int:
        """The int32 numbers of a row: ids, length, starts, and its value of two."""
        return self.seq_len + 1 + self.starts + 2 * self.values

    def nbytes(self, rows: int) -> int:
        """Return the bytes that buffers for ``rows`` rows take."""
        return rows * (4 * self.words + self.seq_len * self.flags) + 8


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where a message's arrays are written; reused, in shared memory when it goes to another process.

    ``ids`` is int32 ``[rows, seq_len]``, ``lengths`` int32 ``[rows]``, ``starts`` int32 ``[rows * layout.starts]``,
    ``flags`` uint8 ``[rows, seq_len]`` and ``values`` int64 ``[rows]`` where the layout has them. ``origins``: these
    come with the states, since nobody knows how many there are.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: NDArray[np.int32]
    flags: NDArray[np.uint8] | None = None
    values: NDArray[np.int64] | None = None
    origins: bool = False

    @classmethod
    def over(cls, memory: memoryview, rows: int, layout: Layout) -> Buffers:
        """Lay the arrays out over ``memory``, of ``layout.nbytes(rows)`` bytes."""
        data = np.frombuffer(memory, dtype=np.uint8)
        values = None
        if layout.values:  # first: they must lie at multiples of eight
            values, data = data[: 8 * rows].view(np.int64), data[8 * rows :]
        tokens = rows * layout.seq_len
        words = tokens + rows + rows * layout.starts
        flat = data[: 4 * words].view(np.int32)
        flags = data[4 * words : 4 * words + tokens].reshape(rows, layout.seq_len) if layout.flags else None
        ids = flat[:tokens].reshape(rows, layout.seq_len)
        return cls(ids, flat[tokens : tokens + rows], flat[tokens + rows :], flags, values, layout.origins)

    @classmethod
    def private(cls, rows: int, layout: Layout) -> Buffers:
        """Make buffers in this process's own memory."""
        return cls.over(np.empty(layout.nbytes(rows), dtype=np.uint8).data, rows, layout)

    def message(self, rows: int, starts: int, states: bytes, told: Told | None = None) -> Message:
        """Return the first ``rows`` rows and ``starts`` document starts as a message."""
        flags = None if self.flags is None else self.flags[:rows]
        values = None if self.values is None else self.values[:rows]
        return Message(self.ids[:rows], self.lengths[:rows], self.starts[:starts], states, flags, values, told)

    def read(self, rows: int, starts: int, payload: bytes) -> Message:
        """Return the message that another process wrote here, with this ``payload``."""
        return self.message(rows, starts, *(Told.split(payload) if self.origins else (payload, None)))


@dataclass(frozen=True, slots=True)
class Message:
    """Rows in the order in which the rank hands them out, as views of :class:`Buffers`.

    ``ids``: int32 ``[rows, seq_len]``, of row ``i`` the first ``lengths[i]`` count (0: the lane has ended).
    ``starts``: int32, sorted, where documents start, as ``row * seq_len + column``; row starts need not be listed.
    ``flags``: uint8 ``[rows, seq_len]``, ``values``: int64 ``[rows]``, where the objective has them.
    ``states`` is the JSON of the lanes' states before the first row, by lane number. A message without rows is the
    last: every lane has ended, and ``states`` is where. ``told``: which records the rows are made of, where that is
    asked for.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: NDArray[np.int32]
    states: bytes
    flags: NDArray[np.uint8] | None = None
    values: NDArray[np.int64] | None = None
    told: Told | None = None

    @property
    def payload(self) -> bytes:
        """What does not lie in buffers, as :meth:`Buffers.read` takes it."""
        return self.states if self.told is None else self.told.behind(self.states)


def rounds_in(nbytes: int, rows: int, seq_len: int) -> int:
    """Return how many rounds of ``rows`` rows fill about ``nbytes``, at least one."""
    return max(1, nbytes // (4 * rows * seq_len))
