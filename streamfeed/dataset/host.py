"""Hosting lanes: the rows of some of a rank's lanes, in the rank's order, as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from streamfeed.dataset.origins import Telling
from streamfeed.encode.objectives.protocol import LOSS
from streamfeed.lane.lane import Block, Lane, LaneTools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.dataset.message import Buffers, Message
    from streamfeed.dataset.share import Share
    from streamfeed.lane.pack import Packed
    from streamfeed.lane.state import LaneState
    from streamfeed.plan.plan import Plan

__all__ = ["Host"]


class _Feed:
    """One hosted lane: the rank's own rows of it, block by block, and the lane's state behind the last one taken."""

    def __init__(self, lane: Lane, state: LaneState, first_row: int, step: int) -> None:
        self.lane = lane
        self._step = step
        self._state: LaneState | None = state
        self._last: tuple[Block, int] | None = None
        self._block: Block | None = None
        self._rows = 0  # of the block
        self._next = first_row - state.rows
        self._told: tuple[LaneState | None, bytes] = (None, b"")

    def state_json(self) -> bytes:
        """Return :meth:`state` as JSON; the same one as before, as behind most rows of a packing window, is at hand."""
        state = self.state()
        if state is not self._told[0]:
            self._told = state, orjson.dumps(state.to_json())
        return self._told[1]

    def state(self) -> LaneState:
        """Return the lane's state behind the last own row taken; of an ended lane, behind all that was dropped too."""
        if self.lane.ended and self._block is None:
            return self.lane.end_state()
        if self._state is None:
            assert self._last is not None
            self._state = self._last[0].state_behind(self._last[1])
        return self._state

    def ready(self) -> bool:
        """Make sure that an own row is at hand; False for good when the lane has ended."""
        while self._next >= self._rows:
            self._next -= self._rows
            self._block = self.lane.next_block()
            if self._block is None:
                self._rows = 0
                return False
            self._rows = len(self._block)
        return True

    def take(self, most: int) -> tuple[Block, range]:
        """Return up to ``most`` own rows: which ones of a block; only after :meth:`ready` was True."""
        block, step, first = self._block, self._step, self._next
        assert block is not None
        count = min(most, -(-(self._rows - first) // step))
        last = first + (count - 1) * step
        self._next = last + step
        self._last, self._state = (block, last), None
        return block, range(first, last + 1, step)


class _Begun(NamedTuple):
    """Where documents begin in rows that were taken: ``starts``, as ``row * width + column`` of a block.

    Of the block's ``rows``, which are rows ``place`` of the message; those between them are another rank's.
    """

    starts: NDArray[np.int64]
    rows: range
    place: range

    @classmethod
    def of(cls, packed: Packed, rows: range, place: range) -> _Begun:
        """Look them up in the packed rows of a block."""
        begin, end = packed.starts.searchsorted((rows.start * packed.width, rows.stop * packed.width))
        return cls(packed.starts[begin:end], rows, place)


def _write(packed: Packed, rows: range, buffers: Buffers, place: range) -> None:
    """Write ``rows`` to rows ``place`` of ``buffers``, and what goes with them; lengths where rows are not whole."""
    packed.ids.write(rows, buffers.ids, place)
    if packed.lengths is not None or packed.width < buffers.ids.shape[1]:
        buffers.lengths[_slice(place)] = packed.width if packed.lengths is None else packed.lengths[_slice(rows)]
    if buffers.values is not None and packed.values is not None:
        buffers.values[_slice(place)] = packed.values[_slice(rows)]
    if buffers.flags is None:
        return
    if packed.flags is None:
        buffers.flags[_slice(place)] = LOSS
    else:
        packed.flags.write(rows, buffers.flags, place)


def _slice(numbers: range) -> slice:
    return slice(numbers.start, numbers.stop, numbers.step)


class Host:
    """Some slots of a rank, from its ``first``-th row on.

    ``states`` are the lanes' states at or before their share of the rows handed out. Built once a worker and pass.
    """

    def __init__(
        self,
        plan: Plan,
        share: Share,
        slots: Sequence[int],
        states: Mapping[int, LaneState],
        tools: LaneTools,
        *,
        first: int,
        first_epoch: int,
    ) -> None:
        self._feeds: list[_Feed] = []
        self._stages = tools.stages
        self._seq_len = plan.rules.seq_len
        self._error: Exception | None = None
        begun = []
        for slot in slots:
            t = first + (slot - first) % share.slots
            state = states[share.lane_at(slot)]
            lane = Lane(plan, share.lane_at(slot), state, tools, first_epoch=first_epoch)
            self._feeds.append(_Feed(lane, state, share.lane_row(t), share.step))
            begun.append(t // share.slots == first // share.slots)
        self._telling = Telling([feed.lane for feed in self._feeds]) if tools.remember else None
        for feed in self._feeds:
            feed.lane.start()
        self._partial = [feed for feed, now in zip(self._feeds, begun, strict=True) if now]
        if len(self._partial) == len(self._feeds):
            self._partial = []

    def states(self) -> dict[int, LaneState]:
        """Return the lanes' states behind the last row handed out."""
        return {feed.lane.number: feed.state() for feed in self._feeds}

    def message(self, rounds: int, buffers: Buffers) -> Message:
        """Write up to ``rounds`` rounds into ``buffers``; a message without rows, for good, when all lanes have ended.

        The first message may be the rest of a round that began before the first row; it may be empty rows only, any
        later round has a row that is not. Raises what a lane raises in the place of its row: those before it come
        first.
        """
        if self._error is not None:
            raise self._error
        with self._stages.pack.busy:
            message = self._message(rounds, buffers)
        self._stages.pack.count(len(message.ids))
        self._stages.send.count(1, message.ids.nbytes)
        return message

    def _message(self, rounds: int, buffers: Buffers) -> Message:
        before = self._states_json()
        feeds, rounds, most = (self._partial, 1, 1) if self._partial else (self._feeds, rounds, 0)
        self._partial = []
        rows = rounds * len(feeds)
        begun: list[_Begun] = []
        buffers.lengths[:rows] = self._seq_len
        for index, feed in enumerate(feeds):
            filled, error = self._fill(feed, index, len(feeds), rounds, buffers, begun)
            most = max(most, filled)
            if filled < rounds:
                buffers.lengths[filled * len(feeds) + index :: len(feeds)] = 0
            if error is not None:
                self._error, rounds, rows = error, filled, filled * len(feeds) + index
        rows = min(rows, most * len(feeds))
        if not rows and self._error is not None:
            raise self._error
        if not rows:
            before = self._states_json()
        starts = self._starts(begun, rows)
        buffers.starts[: len(starts)] = starts
        told = None if self._telling is None else self._telling.told()
        return buffers.message(rows, len(starts), before, told)

    def _fill(
        self, feed: _Feed, index: int, stride: int, rounds: int, buffers: Buffers, begun: list[_Begun]
    ) -> tuple[int, Exception | None]:
        """Write ``feed``'s next rows to rows ``index``, ``index + stride``, ...; return how many, and any error."""
        filled = 0
        while filled < rounds:
            try:
                if not feed.ready():
                    break
            except Exception as error:  # noqa: BLE001 - whatever it is, the rows before it are good
                return filled, error
            block, rows = feed.take(rounds - filled)
            first = index + filled * stride
            filled += len(rows)
            place = range(first, index + filled * stride, stride)
            with self._stages.send.busy:
                _write(block.packed, rows, buffers, place)
                if self._telling is not None:
                    self._telling.take(feed.lane.number, block, rows, place)
            begun.append(_Begun.of(block.packed, rows, place))
        return filled, None

    def _starts(self, begun: list[_Begun], rows: int) -> NDArray[np.int64]:
        """Return where documents begin in the message, sorted, as ``row * seq_len + column``: for all lanes at once."""
        if not begun:
            return np.empty(0, dtype=np.int64)
        ranges = [(some.rows.start, some.rows.step, some.place.start, some.place.step) for some in begun]
        first, step, place, stride = np.repeat(ranges, [len(some.starts) for some in begun], axis=0).T
        row, column = np.divmod(np.concatenate([some.starts for some in begun]), self._seq_len)
        row -= first
        if (step > 1).any():
            own = row % step == 0
            row, column, step, place, stride = (some[own] for some in (row // step, column, step, place, stride))
        row = row * stride + place
        where: NDArray[np.int64] = (row * self._seq_len + column)[row < rows]
        where.sort()
        return where

    def _states_json(self) -> bytes:
        return orjson.dumps({str(feed.lane.number): orjson.Fragment(feed.state_json()) for feed in self._feeds})
