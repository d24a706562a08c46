"""What a worker is told: everything that it needs to host its slots, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from streamfeed.dataset.host import Host
from streamfeed.dataset.message import Buffers, Layout, Message, rounds_in
from streamfeed.encode.engines import CHECK_EVERY
from streamfeed.encode.objectives.build import build_objective
from streamfeed.encode.objectives.protocol import Objective, TextObjective
from streamfeed.encode.proof import Verdict, disprove
from streamfeed.lane.lane import LaneTools
from streamfeed.lane.mapping import Mapper
from streamfeed.lane.sampling import Sampler
from streamfeed.loader.ring import SLOTS
from streamfeed.plan.plan import Plan, SourceHands
from streamfeed.storage.fetch import Fetcher
from streamfeed.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfeed.dataset.share import Share
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.lane.ahead import AheadThread
    from streamfeed.lane.state import LaneState
    from streamfeed.objectives import Objective as Settings
    from streamfeed.stages import Stages
    from streamfeed.stats import ReadStats

__all__ = ["InProcess", "Job", "Messages", "message_bytes"]

MESSAGE_BYTES = 3 << 20
"""Ids of a message once the first batch is out, at most: so large that the hand-over costs little."""

LEAST_MESSAGE_BYTES = 3 << 19
"""Ids of a message where there are many workers, each of which has little to hand over."""

RINGS_BYTES = 54 << 20
"""What the rings of all workers take while messages are larger: containers have 64 MB to share."""


MOST_CHECKED_FOR = 4
"""Workers for which the first one checks as well; for more it would fall behind them, by 1 % for each."""


@dataclass(frozen=True)
class Job:
    """Worker ``worker`` of ``workers`` of the rank ``share``: its slots from row ``first`` on, lanes from ``states``.

    ``first_rows``: the rank's rows that make its first batch; until they are out, messages are of one round.
    """

    plan: Plan
    objective: Settings
    tokenizer: TokenizerSpec
    verdict: Verdict
    cache_dir: Path | None
    share: Share
    worker: int
    workers: int
    states: Mapping[int, LaneState]
    first: int
    first_epoch: int
    first_rows: int = 1
    only: Sequence[int] | None = None
    """the slots that are hosted, sorted; None: all of the worker's"""
    provenance: bool = False
    """whether messages tell which records their rows are made of"""
    threads: int = 1
    """that the tokenizer engine has in a worker process"""
    recorded: bool = False
    """whether the worker sends along what it did when"""

    @property
    def slots(self) -> Sequence[int]:
        """The slots that the worker hosts."""
        return self.share.worker_slots(self.worker, self.workers) if self.only is None else self.only

    @property
    def seq_len(self) -> int:
        """Tokens of a row."""
        return self.plan.rules.seq_len

    @property
    def layout(self) -> Layout:
        """What there is of a row."""
        return Layout.of(self.plan.rules, origins=self.provenance)

    @property
    def rounds(self) -> int:
        """Rounds of the worker's lanes in one full message."""
        return rounds_in(message_bytes(self.layout, self.workers), len(self.slots), self.seq_len)

    @property
    def small_messages(self) -> int:
        """Messages of one round that hold the rank's first batch, wherever in a round it begins."""
        return 1 + -(-self.first_rows // self.share.slots)

    @property
    def rows(self) -> int:
        """Rows of one full message."""
        return self.rounds * len(self.slots)

    def lanes_json(self) -> bytes:
        """Return the states with which the worker's lanes begin, as its messages carry them."""
        lanes = [self.share.lane_at(slot) for slot in self.slots]
        return orjson.dumps({str(lane): self.states[lane].to_json() for lane in lanes})

    def host(self, stats: ReadStats, thread: AheadThread | None, stages: Stages | None = None) -> Host:
        """Build the lanes; this is where a worker loads its tokenizer engine.

        ``stages`` are those of the thread that takes the rows, where another one reads: that one's are in ``stats``.
        """

        def disproved(reason: str) -> None:
            disprove(self.tokenizer, self.cache_dir, reason)

        fetcher = Fetcher()
        objective = build_objective(
            self.objective,
            self.tokenizer,
            self.verdict,
            seq_len=self.seq_len,
            skip=self.plan.rules.on_error == "skip",
            check_every=self._check_every(),
            on_mismatch=disproved,
        )
        tools = LaneTools(
            samplers=[self._sampler(index, objective, stats.stages) for index in range(len(self.plan.sources))],
            hands=[SourceHands(source, self.plan.rules, index) for index, source in enumerate(self.plan.sources)],
            stores=[Store(source.storage_options, stats, fetcher, source.retry) for source in self.plan.sources],
            thread=thread,
            remember=self.provenance,
            stages=stages or stats.stages,
        )
        return Host(
            self.plan, self.share, self.slots, self.states, tools, first=self.first, first_epoch=self.first_epoch
        )

    def _sampler(self, index: int, objective: Objective, stages: Stages) -> Sampler:
        source, rules = self.plan.sources[index], self.plan.rules
        longest = 0 if rules.packing == "concat" else rules.seq_len
        if source.shape.texts:
            assert isinstance(objective, TextObjective)
            return Sampler(None, objective, longest=longest, stages=stages)
        mapper = None
        if source.map is not None:
            mapper = Mapper(source.map.get(), source.taken, rules.seed, index)
        return Sampler(objective, mapper=mapper, longest=longest, stages=stages)

    def _check_every(self) -> int | None:
        """Return how often the worker checks its engine: only a rank's first does, for all of them.

        The reference takes 20 MB and more, and what it would find is a property of engine and text, not of a process.
        """
        return None if self.worker else CHECK_EVERY // min(self.workers, MOST_CHECKED_FOR)


def message_bytes(layout: Layout, workers: int) -> int:
    """Return how many bytes of ids a full message holds, about, where there are so many workers."""
    room = RINGS_BYTES // (SLOTS * workers)
    return min(MESSAGE_BYTES, max(LEAST_MESSAGE_BYTES, room * 4 * layout.seq_len // layout.nbytes(1)))


class Messages:
    """A host's messages: of one round until the first batch is out, so that it is early, then of more and more."""

    def __init__(self, host: Host, job: Job) -> None:
        self._host = host
        self._most = job.rounds
        self._small = job.small_messages
        self._rounds = 1

    def next(self, buffers: Buffers) -> Message:
        """Write the next message into ``buffers``."""
        if self._small:
            self._small -= 1
        else:
            self._rounds = min(self._rounds * 2, self._most)
        return self._host.message(self._rounds, buffers)


class InProcess:
    """A channel whose worker is this process: ``num_workers=0``. One message at a time, made when it is asked for."""

    def __init__(self, job: Job, stats: ReadStats) -> None:
        self._messages = Messages(job.host(stats, None), job)
        self._free = [Buffers.private(job.rows, job.layout)]
        self._held: list[Buffers] = []
        self._shape = (job.rows, job.layout)

    def receive(self) -> Message:
        """Make the next message."""
        buffers = self._free.pop() if self._free else Buffers.private(*self._shape)
        self._held.append(buffers)
        return self._messages.next(buffers)

    def ready(self) -> bool:
        """Say no: a message is made when it is needed."""
        return False

    def release(self) -> None:
        """Take the oldest message's buffers back."""
        self._free.append(self._held.pop(0))
