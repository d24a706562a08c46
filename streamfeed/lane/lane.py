"""A lane: an independent, deterministic sequence of rows, and its state behind every one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import xxhash

from streamfeed.errors import BudgetError
from streamfeed.lane.ahead import Ahead, AheadThread
from streamfeed.lane.mix import Mixer, position
from streamfeed.lane.pack import ConcatPacker, Packed
from streamfeed.lane.runs import Run, runs
from streamfeed.lane.state import LaneState, SourceState
from streamfeed.lane.windows import WindowReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streamfeed.encode.protocol import Engine
    from streamfeed.plan.plan import Plan, SourceHands
    from streamfeed.storage.store import Store

__all__ = ["Block", "Lane", "LaneTools"]

RUNS_AHEAD = 1
"""Encoded runs that a lane holds ready on a reading thread: about 256 k tokens."""


@dataclass(frozen=True)
class LaneTools:
    """What all lanes of one process share. ``thread`` reads and encodes ahead; None does it in place."""

    engine: Engine
    hands: list[SourceHands]
    stores: list[Store]
    thread: AheadThread | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of a lane, int32 ``[n, length]``: of ``seq_len`` tokens but for the last row of a finite pass.

    ``starts``: int64, sorted, where documents start, as ``row * length + column``; row starts are not listed.
    ``chains[i]`` is the chained hash behind row ``i``. The rest gives the state behind any row.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64]
    chains: list[int]
    _after: LaneState
    _run: Run | None
    _carried: int

    def state_behind(self, row: int) -> LaneState:
        """Return the lane's state behind row ``row`` of the block."""
        after, run = self._after, self._run
        number = after.rows - len(self.rows) + row + 1
        if run is None:
            return replace(after, rows=number, chain=self.chains[row])
        reached = (row + 1) * self.rows.shape[1] - self._carried
        document = int(run.offsets.searchsorted(reached, side="right")) - 1
        offset = reached - int(run.offsets[document])
        begun = document + (offset > 0)
        states = list(after.sources)
        moved = position(run, states[run.source], document)
        ahead = int(run.offsets[-1] - run.offsets[begun])
        states[run.source] = SourceState(moved.place, moved.document, moved.digest, moved.tokens - ahead, moved.due)
        tally = after.tally.copy()
        if run.empties is not None:
            tally.empty -= int(run.empties[-1] - run.empties[document])
        return LaneState(
            rows=number,
            chain=self.chains[row],
            current=run.source if offset else -1,
            offset=offset,
            tally=tally,
            sources=tuple(states),
        )


class Lane:
    """Lane ``lane`` of ``plan`` from ``state`` on, through the pass that began with ``first_epoch``."""

    def __init__(self, plan: Plan, lane: int, state: LaneState, tools: LaneTools, *, first_epoch: int = 0) -> None:
        rules = plan.rules
        last_epoch = None if rules.epochs is None else first_epoch + rules.epochs
        feeds: list[Ahead[Run]] = []
        for source, source_plan in enumerate(plan.sources):
            reader = WindowReader(
                source_plan,
                rules,
                tools.hands[source],
                source=source,
                lane=lane,
                last_epoch=last_epoch,
                store=tools.stores[source],
            )
            offset = state.offset if state.current == source else 0
            coming = runs(reader, tools.engine, state.sources[source], source=source, offset=offset)
            feeds.append(Ahead(coming, tools.thread, RUNS_AHEAD))
        weights = [source_plan.weight for source_plan in plan.sources]
        self.number = lane
        self._mixer = Mixer(feeds, weights, state.sources, state.tally.copy())
        self._packer = ConcatPacker(rules.seq_len)
        self._packed: list[Block] = []
        self._skip_budget = rules.skip_budget
        self._current = state.current
        self._rows = state.rows
        self._chain = state.chain
        self.ended = state.ended

    def start(self) -> None:
        """Begin reading ahead."""
        if not self.ended:
            self._mixer.start()

    def next_block(self) -> Block | None:
        """Return the next rows of the lane, at least one; None for good when a finite pass has ended."""
        while not self.ended and not self._packed:
            run = self._mixer.take(self._current)
            self._current = -1
            self._check_budget()
            if run is None:
                self.ended = True
                return self._last_block()
            self._packed = [self._block(packed, run) for packed in self._packer.feed(run)]
        return self._packed.pop(0) if self._packed else None

    def end_state(self) -> LaneState:
        """Return the state of a lane that has ended."""
        return LaneState(
            self._rows, self._chain, ended=True, tally=self._mixer.tally, sources=tuple(self._mixer.states())
        )

    def _last_block(self) -> Block | None:
        last = self._packer.flush()
        return None if last is None else self._block(last, None)

    def _block(self, packed: Packed, run: Run | None) -> Block:
        rows = packed.rows
        chains: list[int] = []
        for row in rows:
            self._chain = xxhash.xxh3_64_intdigest(row, self._chain)
            chains.append(self._chain)
        self._rows += len(rows)
        after = LaneState(
            rows=self._rows,
            chain=self._chain,
            ended=run is None,
            tally=self._mixer.tally.copy(),
            sources=tuple(self._mixer.states()),
        )
        return Block(rows, packed.starts, chains, after, run, packed.carried)

    def _check_budget(self) -> None:
        skipped = self._mixer.tally.skipped + self._mixer.tally.broken_shards
        if skipped > self._skip_budget:
            raise BudgetError(
                f"lane {self.number} passed over {skipped:,} bad records or shards, more than skip_budget="
                f"{self._skip_budget:,}; mend the shards or raise the budget"
            )
