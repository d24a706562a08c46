"""How a loader begins to read: its lanes shared out among workers, and what makes batches of their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamfeed.dataset.message import Layout
from streamfeed.loader.assembly import Assembler
from streamfeed.loader.columns import columns_for
from streamfeed.loader.job import InProcess, Job
from streamfeed.loader.provenance import Tracer
from streamfeed.loader.reader import Channel, RankReader
from streamfeed.loader.votes import Turns, Votes

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext
    from pathlib import Path

    from streamfeed.config import StreamConfig
    from streamfeed.dataset.share import Share
    from streamfeed.dataset.state import StreamState
    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.loader.columns import Column
    from streamfeed.loader.crew import Crew
    from streamfeed.loader.memory import BatchMemory
    from streamfeed.plan.plan import Plan
    from streamfeed.stats import ReadStats
    from streamfeed.topology import Ranks

__all__ = ["Opening"]


@dataclass(kw_only=True)
class Opening:
    """What stays the same from one beginning to the next; the arguments are those of the loader.

    ``context`` starts worker processes in ``crew``; None hosts the lanes in this one, whose reading ``stats`` count.
    ``threads`` are the engine's in a worker; ``voters`` agree on the end of a finite pass, if ranks do; ``recorded``:
    workers tell what they do when; ``provenance``: which records rows are made of. Rows are put into ``memory``, if
    there is one; ``starts`` counts the beginnings.
    """

    config: StreamConfig
    tokenizer: TokenizerSpec
    verdict: Verdict
    cache_dir: Path
    batch_size: int
    columns: tuple[Column, ...]
    pad_to_multiple_of: int | None
    context: BaseContext | None
    threads: int
    crew: Crew
    stats: ReadStats
    voters: Ranks | None
    recorded: bool
    provenance: bool = False
    memory: BatchMemory | None = None
    starts: int = 0

    def open(self, plan: Plan, share: Share, base: StreamState, workers: int) -> Turns:
        """Start up to so many ``workers`` at ``base``, and return the batches of ``share`` from there on."""
        jobs = self._jobs(plan, share, base, workers)
        channels: list[Channel]
        if self.context is None:
            channels = [InProcess(job, self.stats) for job in jobs]
        else:
            channels = list(self.crew.start(self.context, jobs))
        reader = RankReader(share, channels, jobs[0].first, [job.lanes_json() for job in jobs])
        columns = columns_for(self.config, self.tokenizer, share, base.number, self.columns, self.pad_to_multiple_of)
        assembler = Assembler(
            reader,
            self.batch_size,
            self.tokenizer.padding,
            Layout.of(plan.rules, origins=self.provenance),
            columns,
            self.memory,
            self.stats.stages,
            Tracer(plan, share) if self.provenance else None,
        )
        self.starts += 1
        return Turns(assembler, None if self.voters is None else Votes(self.voters, assembler, self.starts))

    def _jobs(self, plan: Plan, share: Share, base: StreamState, workers: int) -> list[Job]:
        states = base.lane_states(len(plan.sources))
        hosted = {share.lane_at(slot) for slot in range(share.slots)}
        first = Job(
            plan=plan,
            objective=self.config.objective,
            tokenizer=self.tokenizer,
            verdict=self.verdict,
            cache_dir=self.cache_dir,
            share=share,
            worker=0,
            workers=max(1, min(workers, share.slots)),
            states={lane: state for lane, state in states.items() if lane in hosted},
            first=share.first(base.rows),
            first_epoch=base.first_epoch,
            first_rows=self.batch_size,
            threads=self.threads,
            provenance=self.provenance,
            recorded=self.recorded,
        )
        return [replace(first, worker=number) for number in range(first.workers)]
