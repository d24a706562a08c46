"""A lane: an independent, deterministic sequence of rows, and its state behind every one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamfeed.errors import BudgetError
from streamfeed.lane.ahead import Ahead, AheadThread
from streamfeed.lane.best_fit import BestFitPacker
from streamfeed.lane.mix import Mixer
from streamfeed.lane.origins import Ledger
from streamfeed.lane.pack import ConcatPacker, Packed, Packer
from streamfeed.lane.pages import Pages
from streamfeed.lane.runs import Run, runs
from streamfeed.lane.single import GroupPacker, SinglePacker
from streamfeed.lane.state import LaneState
from streamfeed.lane.windows import WindowReader
from streamfeed.stages import Stages

if TYPE_CHECKING:
    from streamfeed.lane.sampling import Sampler
    from streamfeed.plan.plan import Plan, Rules, SourceHands
    from streamfeed.storage.store import Store

__all__ = ["Block", "Lane", "LaneTools"]

RUNS_AHEAD = 1
"""Encoded runs that a lane holds ready on a reading thread: about 256 k tokens."""


@dataclass(frozen=True)
class LaneTools:
    """What all lanes of one process share: for every source how it is sampled, its hands, its store.

    ``thread`` reads and encodes ahead; None does it in place. ``stages`` are those of the thread that takes rows.
    ``remember``: blocks know where their rows come from. ``pages`` hold large windows.
    """

    samplers: list[Sampler]
    hands: list[SourceHands]
    stores: list[Store]
    thread: AheadThread | None = None
    stages: Stages = field(default_factory=Stages)
    remember: bool = False
    pages: Pages = field(default_factory=Pages)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of a lane, and the lane's state behind every one of them.

    ``chains[i]`` is the chained hash behind row ``i``: of the ids that count, and of where they went in rows that were
    packed from many documents; of those only the last counts. ``_after`` is the state behind all that
    was taken, ``_before`` the one in front of the documents that these rows were packed from. ``begin``: how many
    tokens of the lane lie before these rows, where that is asked for.
    """

    packed: Packed
    chains: list[int]
    _before: LaneState
    _after: LaneState
    _run: Run | None
    begin: int = 0

    def __len__(self) -> int:
        return len(self.packed)

    def state_behind(self, row: int) -> LaneState:
        """Return the lane's state at or before row ``row`` of the block, that row included.

        Rows that are packed from many documents have no place in them: until the last one the state stays in front of
        those documents, and what was handed out is made again.
        """
        after, run = self._after, self._run
        last = row == len(self) - 1
        if run is None and last:
            return after
        reached = 0 if run is None else self.packed.reached(row)
        if run is None or reached < 0:
            return self._before
        number = after.rows - len(self) + row + 1
        sample = int(run.offsets.searchsorted(reached, side="right")) - 1
        offset = reached - int(run.offsets[sample])
        begun = sample + (offset > 0)
        states = list(after.sources)
        states[run.source] = run.position(states[run.source], sample, int(run.offsets[begun] - run.offsets[-1]))
        tally = after.tally.copy() if run.counts else after.tally
        for name, before in run.counts.items():
            setattr(tally, name, getattr(tally, name) - int(before[-1] - before[sample]))
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
                remember=tools.remember,
                pages=tools.pages,
            )
            offset = state.offset if state.current == source else 0
            begin = state.sources[source]
            coming = runs(reader, tools.samplers[source], begin, source=source, lane=lane, offset=offset)
            feeds.append(Ahead(coming, tools.thread, RUNS_AHEAD, tools.stages))
        weights = [source_plan.weight for source_plan in plan.sources]
        self.number = lane
        self._mixer = Mixer(feeds, weights, state.sources, state.tally.copy())
        self._packer = _packer(rules, lane, state.rows)
        self.ledger = Ledger() if tools.remember else None
        self._packed: list[Block] = []
        self._skip_budget = rules.skip_budget
        self._current = state.current
        self._rows = state.rows
        self._chain = state.chain
        self._begin = state
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
            if self.ledger is not None:
                self.ledger.feed(run)
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
        chains = packed.ids.chains(self._chain)
        self._chain = chains[-1]
        self._rows += len(chains)
        after = LaneState(
            rows=self._rows,
            chain=self._chain,
            ended=run is None,
            tally=self._mixer.tally.copy(),
            sources=tuple(self._mixer.states()),
        )
        begin = 0 if self.ledger is None else self.ledger.pack(packed)
        block = Block(packed, chains, self._begin, after, run, begin)
        if packed.ends is not None:
            self._begin = block.state_behind(len(chains) - 1)
        return block

    def _check_budget(self) -> None:
        skipped = self._mixer.tally.skipped + self._mixer.tally.broken_shards
        if skipped > self._skip_budget:
            raise BudgetError(
                f"lane {self.number} passed over {skipped:,} bad records or shards, more than skip_budget="
                f"{self._skip_budget:,}; mend the shards or raise the budget"
            )


def _packer(rules: Rules, lane: int, rows: int) -> Packer:
    if rules.packing == "best_fit":
        return BestFitPacker(rules.seq_len, rules.seed, lane, rows)
    if rules.packing == "concat":
        return ConcatPacker(rules.seq_len)
    return GroupPacker(rules.seq_len, rules.seed, rows) if rules.group_by_length else SinglePacker(rules.seq_len)
