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
            begin, end = message.starts.searchsorted((first * width, last * width))
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
        self._places: dict[tuple[int, int], list[NDArray[np.int64]]] = {}

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
        for tap, places in zip(self._taps, self._layout(count), strict=True):
            drawn = 0
            for part in tap.draw(len(places)):
                where = places[drawn : drawn + len(part.rows)]
                batch.put(_as_slice(where), part.rows)
                lengths[where] = part.lengths
                row = part.starts // seq_len
                starts.append(part.starts + (where[row] - row) * seq_len)
                drawn += len(where)
        self._t += count
        if not lengths.any() and not any(tap.has_more() for tap in self._taps):
            return None
        batch.finish(lengths, starts, pad)
        return int(lengths.sum()), count - int(np.count_nonzero(lengths))

    def _layout(self, count: int) -> list[NDArray[np.int64]]:
        """Return which rows of the next batch come from which tap; the same whenever the slots come round to here."""
        key = (self._t % self._slots, count)
        if key not in self._places:
            workers = (key[0] + np.arange(count)) % self._slots % len(self._taps)
            self._places[key] = [np.flatnonzero(workers == index) for index in range(len(self._taps))]
        return self._places[key]


def _as_slice(places: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return evenly spaced places as a slice: numpy copies whole rows then, without an index array."""
    first, last = int(places[0]), int(places[-1])
    if len(places) == 1:
        return slice(first, first + 1)
    step = int(places[1]) - first
    if last - first != step * (len(places) - 1) or (len(places) > 3 and not (places[1:] - places[:-1] == step).all()):
        return places
    return slice(first, last + 1, step)
