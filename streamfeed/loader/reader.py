"""One rank's batches out of its workers' messages."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streamfeed.dataset.batch import BatchArrays
    from streamfeed.dataset.message import Message
    from streamfeed.dataset.share import Share

__all__ = ["Channel", "RankReader"]


class Channel(Protocol):
    """Where one worker's messages come from, in order."""

    def receive(self) -> Message:
        """Return the next message, waiting for it; the last one has no rows. Raises what the worker raised."""

    def release(self) -> None:
        """Say that the oldest message received and not yet released was used: its buffers may be written again."""

    def close(self) -> None:
        """Stop the worker; safe to call twice."""


class _Part(NamedTuple):
    """Consecutive rows of one message, with their lengths, and document starts relative to the first of them."""

    rows: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: NDArray[np.int32]


class _Tap:
    """One worker's rows, drawn message by message."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.states = b"{}"
        self._messages: deque[Message] = deque()
        self._next = 0
        self._ended = False

    def draw(self, count: int) -> Iterator[_Part]:
        """Yield the next ``count`` rows in parts; fewer once the worker's lanes have ended.

        A part is valid until the next one is asked for.
        """
        while count:
            message = self._current()
            if message is None:
                return
            first, last = self._next, min(self._next + count, len(message.ids))
            width = message.ids.shape[1]
            begin, end = np.searchsorted(message.starts, (first * width, last * width))
            yield _Part(message.ids[first:last], message.lengths[first:last], message.starts[begin:end] - first * width)
            count -= last - first
            self._next = last

    def has_more(self) -> bool:
        """Say whether any row to come is not empty; may wait for a message."""
        if self._current() is None:
            return False
        if self._messages[0].lengths[self._next :].any() or any(len(later.ids) for later in list(self._messages)[1:]):
            return True
        return self._receive()

    def _current(self) -> Message | None:
        """Return the message that holds the next row, or None at the end."""
        while self._messages and self._next >= len(self._messages[0].ids):
            self._messages.popleft()
            self._next = 0
            self.channel.release()
        if not self._messages and not self._receive():
            return None
        self.states = self._messages[0].states
        return self._messages[0]

    def _receive(self) -> bool:
        if self._ended:
            return False
        message = self.channel.receive()
        self._ended = not len(message.ids)
        if self._ended:
            if not self._messages:
                self.states = message.states
            self.channel.release()
            return False
        self._messages.append(message)
        return True


class RankReader:
    """The batches of one rank from its ``first``-th row on; slot ``s`` comes from channel ``s % len(channels)``."""

    def __init__(self, share: Share, channels: Sequence[Channel], first: int) -> None:
        self._slots = share.slots
        self._taps = [_Tap(channel) for channel in channels]
        self._t = first

    def states(self) -> tuple[bytes, ...]:
        """Return each worker's lanes' states, as JSON, at or before the last row handed out."""
        return tuple(tap.states for tap in self._taps)

    def fill(self, batch: BatchArrays, pad: int) -> tuple[int, int] | None:
        """Fill ``batch`` with the next rows; ``None`` when no row to come holds a token.

        Returns the tokens that count and the rows that are empty, because their lanes have ended.
        """
        count, seq_len = batch.input_ids.shape
        lengths = np.zeros(count, dtype=np.int32)
        starts: list[NDArray[np.int64]] = []
        workers = (self._t + np.arange(count)) % self._slots % len(self._taps)
        for index, tap in enumerate(self._taps):
            places = np.flatnonzero(workers == index)
            drawn = 0
            for part in tap.draw(len(places)):
                where = places[drawn : drawn + len(part.rows)]
                batch.put(_as_slice(where), part.rows)
                lengths[where] = part.lengths
                row, column = np.divmod(part.starts, seq_len)
                starts.append(where[row] * seq_len + column)
                drawn += len(where)
        self._t += count
        if not lengths.any() and not any(tap.has_more() for tap in self._taps):
            return None
        batch.finish(lengths, starts, pad)
        return int(lengths.sum()), int((lengths == 0).sum())


def _as_slice(places: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return evenly spaced places as a slice: numpy copies whole rows then, without an index array."""
    if len(places) < 2:
        return slice(int(places[0]), int(places[0]) + 1) if len(places) else slice(0, 0)
    step = int(places[1] - places[0])
    if int(places[-1] - places[0]) != step * (len(places) - 1) or not (np.diff(places) == step).all():
        return places
    return slice(int(places[0]), int(places[-1]) + 1, step)
