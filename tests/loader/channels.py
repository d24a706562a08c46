"""Channels without a worker: they hand out messages that a test has cut, and watch how they are used."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.dataset.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SEQ_LEN = 6


@dataclass
class Rows:
    """Rows of one worker: int32 ``[n, SEQ_LEN]``, their lengths, and where documents start in each."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: Sequence[Sequence[int]]

    @classmethod
    def of(cls, numbers: Sequence[int], lengths: Sequence[int]) -> Rows:
        """Rows that tell their number, in the stream, in every token; every third column starts a document."""
        ids = np.add.outer(np.asarray(numbers) * 10, np.arange(SEQ_LEN)).astype(np.int32)
        starts = [
            [column for column in (number % 3, 3 + number % 2) if column < size]
            for number, size in zip(numbers, lengths, strict=True)
        ]
        return cls(ids, np.asarray(lengths, dtype=np.int32), starts)

    def message(self, first: int, last: int, states: bytes) -> Message:
        """Return rows ``first`` to ``last`` as a message of its own memory."""
        starts = [(row - first) * SEQ_LEN + column for row in range(first, last) for column in self.starts[row]]
        return Message(
            self.ids[first:last].copy(), self.lengths[first:last].copy(), np.asarray(starts, dtype=np.int32), states
        )


@dataclass
class FakeChannel:
    """Hands out ``messages``, then the last one without rows, or raises ``error`` in its place.

    What was released is overwritten, as a worker would; its states tell the number of the message.
    """

    messages: list[Message]
    error: Exception | None = None
    received: int = 0
    released: int = 0
    closed: int = 0
    arrives: int = 0
    """messages that come without being waited for"""
    _held: list[Message] = field(default_factory=list)

    @classmethod
    def cut(cls, rows: Rows, cuts: Sequence[int], error: Exception | None = None) -> FakeChannel:
        """Cut ``rows`` in front of each of ``cuts``."""
        bounds = sorted({0, *cuts, len(rows.ids)})
        return cls([rows.message(a, b, b"%d" % n) for n, (a, b) in enumerate(itertools.pairwise(bounds))], error)

    def receive(self) -> Message:
        if self.received < len(self.messages):
            message = self.messages[self.received]
        elif self.error is not None:
            raise self.error
        else:
            assert self.received == len(self.messages), "asked for more behind the last message"
            message = Message(np.empty((0, SEQ_LEN), np.int32), np.empty(0, np.int32), np.empty(0, np.int32), b"end")
        self.received += 1
        self._held.append(message)
        return message

    def ready(self) -> bool:
        return self.received < self.arrives

    def release(self) -> None:
        message = self._held.pop(0)
        message.ids[...] = -1
        message.lengths[...] = -1
        message.starts[...] = -1
        self.released += 1

    def close(self) -> None:
        self.closed += 1
