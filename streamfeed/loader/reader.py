"""One rank's batches out of its workers' messages."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from streamfeed.dataset.origins import Ledgers, RowOrigins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streamfeed.dataset.batch import BatchArrays
    from streamfeed.dataset.message import Message
    from streamfeed.dataset.share import Share

__all__ = ["Channel", "Drawn", "Filled", "RankReader"]


class Channel(Protocol):
    """Where one worker's messages come from, in order."""

    def receive(self) -> Message:
        """Return the next message, waiting for it; the last one has no rows. Raises what the worker raised."""

    def ready(self) -> bool:
        """Say whether :meth:`receive` has something to return, or to raise, at once."""

    def release(self) -> None:
        """Say that the oldest message received and not yet released was used: its buffers may be written again."""


class _Part(NamedTuple):
    """Consecutive rows of one message, from ``first`` on, with their lengths, and starts relative to the first one."""

    rows: NDArray[np.int32]
    lengths: NDArray[np.int32]
    starts: NDArray[np.int32]
    flags: NDArray[np.uint8] | None
    values: NDArray[np.int64] | None
    origins: RowOrigins | None
    first: int


class Drawn(NamedTuple):
    """Where rows come from: row ``first + i`` of ``origins`` is row ``rows[i]`` of a batch."""

    origins: RowOrigins
    rows: NDArray[np.int64]
    first: int


class Filled(NamedTuple):
    """What was put into a batch: how many tokens of each row count, int32 ``[rows]`` (0 where its lane has ended).

    ``pieces``: int64, where pieces begin, as ``row * seq_len + column``, sorted. ``first``: which of the rank's rows
    the first one is. ``drawn``: where the rows come from, if that is asked for.
    """

    lengths: NDArray[np.int32]
    pieces: NDArray[np.int64]
    first: int
    drawn: Sequence[Drawn] = ()


class _Places(NamedTuple):
    """Which rows of a batch come from one tap: ``rows``, int64, and as a slice where they are evenly spaced."""

    rows: NDArray[np.int64]
    place: slice | NDArray[np.int64]


class _Tap:
    """One worker's rows, drawn message by message."""

    def __init__(self, channel: Channel, states: bytes) -> None:
        self.channel = channel
        self.states = states
        self._messages: deque[Message] = deque()
        self._ledgers = Ledgers()
        self._origins: deque[RowOrigins] = deque()
        self._next = 0
        self._next_start = 0
        self._end: bytes | None = None
        self._failure: Exception | None = None

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
            begin, end = self._next_start, int(message.starts.searchsorted(last * width))
            self._next, self._next_start = last, end
            yield _Part(
                message.ids[first:last],
                message.lengths[first:last],
                message.starts[begin:end] - first * width,
                None if message.flags is None else message.flags[first:last],
                None if message.values is None else message.values[first:last],
                self._origins[0] if self._origins else None,
                first,
            )
            count -= last - first

    def arrived(self) -> int:
        """Return how many rows of the message at hand are not yet drawn."""
        return len(self._messages[0].ids) - self._next if self._messages else 0

    def sure(self) -> int:
        """Return how many rows there are up to the last one at hand that is not empty; takes what has arrived."""
        while self._end is None and self._failure is None and self.channel.ready():
            try:
                self._receive()
            except Exception as error:  # noqa: BLE001 - the rows before it come first
                self._failure = error
        rows, last = -self._next, 0
        for message in self._messages:
            full = np.flatnonzero(message.lengths[max(0, -rows) :])
            if len(full):
                last = rows + max(0, -rows) + int(full[-1]) + 1
            rows += len(message.ids)
        return max(0, last)

    def at_hand(self, count: int) -> bool:
        """Say whether the next ``count`` rows can be drawn, or their error raised, without waiting."""
        rows = sum(len(message.ids) for message in self._messages) - self._next
        return rows >= count or self._end is not None or self._failure is not None

    def holds_more(self) -> bool:
        """Say whether any row at hand and not yet drawn is not empty."""
        passed = self._next
        for message in self._messages:
            if message.lengths[passed:].any():
                return True
            passed = 0
        return False

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
            if self._origins:
                self._origins.popleft()
            self._next = self._next_start = 0
            self.channel.release()
            if not self._messages and self._end is not None:
                self.channel.release()  # the last one, which came while others were in use
        if not self._messages and not self._receive():
            return None
        self.states = self._messages[0].states
        return self._messages[0]

    def end(self) -> None:
        """Take the states at the end, once no row to come holds a token: what is not drawn is empty."""
        if self._end is not None:
            self.states = self._end

    def _receive(self) -> bool:
        if self._end is not None:
            return False
        if self._failure is not None:
            raise self._failure
        message = self.channel.receive()
        if not len(message.ids):
            self._end = message.states
            if not self._messages:
                self.end()
                self.channel.release()
            return False
        self._messages.append(message)
        if message.told is not None:
            self._origins.append(self._ledgers.read(message.told))
        return True


class RankReader:
    """The batches of one rank from its ``first``-th row on; slot ``s`` comes from channel ``s % len(channels)``.

    ``states``: the lanes of every channel as they begin, as JSON; they stand until a channel's first row is drawn.
    """

    def __init__(
        self, share: Share, channels: Sequence[Channel], first: int, states: Sequence[bytes] | None = None
    ) -> None:
        self._slots = share.slots
        self._taps = [_Tap(*pair) for pair in zip(channels, states or [b"{}"] * len(channels), strict=True)]
        self._first = self._t = first
        self._places: dict[tuple[int, int], list[_Places]] = {}

    def states(self) -> tuple[bytes, ...]:
        """Return each worker's lanes' states, as JSON, at or before the last row handed out."""
        return tuple(tap.states for tap in self._taps)

    def arrived(self, rows: int, most: int) -> int:
        """Return how many batches of ``rows`` rows, up to ``most``, are in the messages at hand: no need to wait."""
        arrived = [tap.arrived() for tap in self._taps]
        count = min(most, sum(arrived) // rows)
        while count and any(
            have < len(places.rows) for have, places in zip(arrived, self._layout(count * rows), strict=True)
        ):
            count -= 1
        return count

    def has_more(self) -> bool:
        """Say whether any row to come is not empty; may wait for a message once rows have become empty."""
        return any(tap.holds_more() for tap in self._taps) or any(tap.has_more() for tap in self._taps)

    def ready(self, rows: int, most: int) -> bool:
        """Say whether the next batches of ``rows`` rows, as many as :meth:`arrived`, can be filled without waiting.

        Takes what has arrived. No, where it would have to be found out whether any row follows that is not empty.
        """
        known = self.sure(rows)
        count = max(1, self.arrived(rows, most))
        if known < (self._t - self._first) // rows + count:
            return False
        layout = self._layout(count * rows)
        return all(tap.at_hand(len(places.rows)) for tap, places in zip(self._taps, layout, strict=True))

    def sure(self, rows: int) -> int:
        """Return how many batches of ``rows`` rows, from the first on, are known to exist without waiting."""
        known = 0
        turn, offset = divmod(self._t, self._slots)
        for index, tap in enumerate(self._taps):
            count = tap.sure()
            if not count:
                continue
            own = range(index, self._slots, len(self._taps))
            passed = len(range(index, offset, len(self._taps)))
            turns, place = divmod(passed + count - 1, len(own))
            known = max(known, (turn + turns) * self._slots + own[place] + 1 - self._first)
        return -(-known // rows)

    def blank(self, batch: BatchArrays, pad: int) -> Filled:
        """Fill ``batch`` with empty rows: those of this rank have ended, and another one's have not."""
        count = len(batch.input_ids)
        lengths = np.zeros(count, dtype=np.int32)
        self._t += count
        return Filled(lengths, batch.finish(lengths, [], pad), self._t - count)

    def fill(self, batch: BatchArrays, pad: int) -> Filled | None:
        """Fill ``batch`` with the next rows; ``None`` when neither they nor any row to come holds a token."""
        count, seq_len = batch.input_ids.shape
        lengths = np.zeros(count, dtype=np.int32)
        starts: list[NDArray[np.int64]] = []
        origins: list[Drawn] = []
        for tap, places in zip(self._taps, self._layout(count), strict=True):
            drawn, wanted = 0, len(places.rows)
            for part in tap.draw(wanted):
                rows, place = places if len(part.rows) == wanted else _cut(places, drawn, len(part.rows))
                batch.put(place, part.rows, part.flags, part.values)
                if part.origins is not None:
                    origins.append(Drawn(part.origins, rows, part.first))
                lengths[place] = part.lengths
                row = part.starts // seq_len
                starts.append(part.starts + (rows[row] - row) * seq_len)
                drawn += len(rows)
        self._t += count
        if not lengths.any() and not self.has_more():
            for tap in self._taps:
                tap.end()
            return None
        pieces = batch.finish(lengths, starts, pad)
        return Filled(lengths, pieces, self._t - count, origins)

    def _layout(self, count: int) -> list[_Places]:
        """Return which rows of the next batch come from which tap; the same whenever the slots come round to here."""
        key = (self._t % self._slots, count)
        if key not in self._places:
            workers = (key[0] + np.arange(count)) % self._slots % len(self._taps)
            rows = [np.flatnonzero(workers == index) for index in range(len(self._taps))]
            self._places[key] = [_cut(_Places(places, places), 0, len(places)) for places in rows]
        return self._places[key]


def _cut(places: _Places, start: int, count: int) -> _Places:
    """Return ``count`` of ``places`` from ``start`` on; as a slice numpy copies whole rows without an index array."""
    rows = places.rows[start : start + count]
    if count < 2:
        first = int(rows[0]) if count else 0
        return _Places(rows, slice(first, first + count))
    steps = rows[1:] - rows[:-1]
    if (steps != steps[0]).any():
        return _Places(rows, rows)
    return _Places(rows, slice(int(rows[0]), int(rows[-1]) + 1, int(steps[0])))
