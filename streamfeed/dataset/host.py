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
        while self._block is None or self._next >= len(self._block):
            self._next -= 0 if self._block is None else len(self._block)
            self._block = self.lane.next_block()
            if self._block is None:
                return False
        return True

    def take(self, most: int) -> _Taken:
        """Return up to ``most`` own rows; only after :meth:`ready` was True."""
        block, step = self._block, self._step
        assert block is not None
        packed = block.packed
        first, width = self._next, packed.width
        count = min(most, -(-(len(block) - first) // step))
        last = first + (count - 1) * step
        begin, end = packed.starts.searchsorted((first * width, (last + 1) * width))
        starts = packed.starts[begin:end] - first * width
        if step > 1:
            row, column = np.divmod(starts, width)
            own = row % step == 0
            starts = row[own] // step * width + column[own]
        self._next = last + step
        self._last, self._state = (block, last), None
        return _Taken(block, range(first, last + 1, step), starts)


class _Taken(NamedTuple):
    """Rows ``rows`` of ``block``, and where documents start in them, as ``row * width + column``."""

    block: Block
    rows: range
    starts: NDArray[np.int64]

    @property
    def packed(self) -> Packed:
        """The rows of the block."""
        return self.block.packed

    def write(self, buffers: Buffers, place: range) -> None:
        """Write the rows to rows ``place`` of ``buffers``, and what goes with them."""
        packed, own, target = self.packed, _slice(self.rows), _slice(place)
        buffers.lengths[target] = packed.width if packed.lengths is None else packed.lengths[own]
        if buffers.values is not None and packed.values is not None:
            buffers.values[target] = packed.values[own]
        packed.ids.write(self.rows, buffers.ids, place)
        if buffers.flags is None:
            return
        if packed.flags is None:
            buffers.flags[target] = LOSS
        else:
            packed.flags.write(self.rows, buffers.flags, place)


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
        starts: list[NDArray[np.int64]] = []
        buffers.lengths[: rounds * len(feeds)] = 0
        rows = rounds * len(feeds)
        for index, feed in enumerate(feeds):
            filled, error = self._fill(feed, index, len(feeds), rounds, buffers, starts)
            most = max(most, filled)
            if error is not None:
                self._error, rounds, rows = error, filled, filled * len(feeds) + index
        rows = min(rows, most * len(feeds))
        if not rows and self._error is not None:
            raise self._error
        if not rows:
            before = self._states_json()
        where = np.concatenate(starts) if starts else np.empty(0, dtype=np.int64)
        where = where[where < rows * self._seq_len]
        where.sort()
        buffers.starts[: len(where)] = where
        told = None if self._telling is None else self._telling.told()
        return buffers.message(rows, len(where), before, told)

    def _states_json(self) -> bytes:
        return orjson.dumps({str(feed.lane.number): orjson.Fragment(feed.state_json()) for feed in self._feeds})

    def _fill(
        self,
        feed: _Feed,
        index: int,
        stride: int,
        rounds: int,
        buffers: Buffers,
        starts: list[NDArray[np.int64]],
    ) -> tuple[int, Exception | None]:
        """Write ``feed``'s next rows to rows ``index``, ``index + stride``, ...; return how many, and any error."""
        filled = 0
        while filled < rounds:
            try:
                if not feed.ready():
                    break
            except Exception as error:  # noqa: BLE001 - whatever it is, the rows before it are good
                return filled, error
            taken = feed.take(rounds - filled)
            count = len(taken.rows)
            first = index + filled * stride
            place = range(first, first + (count - 1) * stride + 1, stride)
            with self._stages.send.busy:
                taken.write(buffers, place)
                if self._telling is not None:
                    self._telling.take(feed.lane.number, taken.block, taken.rows, place)
            row = taken.starts // taken.packed.width
            row *= stride * self._seq_len - taken.packed.width  # how much further a row is from the one before it
            row += taken.starts + first * self._seq_len
            starts.append(row)
            filled += count
        return filled, None
