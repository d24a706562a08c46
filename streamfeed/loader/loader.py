"""The loader: batches for one rank, in the stream's order, from any number of worker processes."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from streamfeed.dataset.resolve import Resolved
from streamfeed.dataset.share import Share
from streamfeed.dataset.state import StreamState
from streamfeed.encode.engines import engine_threads
from streamfeed.encode.objectives.build import verdict_for
from streamfeed.encode.proof import default_cache_dir
from streamfeed.errors import ConfigError, RankError
from streamfeed.loader.advice import check
from streamfeed.loader.assembly import group_memory
from streamfeed.loader.columns import check_columns
from streamfeed.loader.crew import Crew
from streamfeed.loader.flow import Flow
from streamfeed.loader.heap import give_back
from streamfeed.loader.history import KEPT_STATES, History
from streamfeed.loader.opening import Opening
from streamfeed.loader.pool import warm_up
from streamfeed.loader.report import Report, check_budget, no_row, tally_of
from streamfeed.loader.votes import Turns, Votes
from streamfeed.stages import Stages
from streamfeed.stats import ReadStats
from streamfeed.topology import Ranks, cores_of_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor
    from torch.distributed import ProcessGroup

    from streamfeed.config import StreamConfig
    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.loader.assembly import Assembled
    from streamfeed.loader.columns import Column
    from streamfeed.loader.memory import Batch
    from streamfeed.loader.profile import Profile
    from streamfeed.plan.plan import Plan

__all__ = ["StreamLoader"]

logger = logging.getLogger(__name__)


class StreamLoader:
    """Batches of one rank: ``input_ids``, ``labels`` (-100 ignored, not shifted), ``position_ids``, int64 ``[B, T]``.

    ``batch_size`` is the rows of a batch of this rank. ``num_workers`` processes host the rank's lanes, 0 hosts them in
    this one. ``rank`` and ``world_size`` are the data-parallel ones; left out, they come from the process group (the
    default one, or ``group``) or torchrun's environment. ``start_method`` is multiprocessing's. All of this is free to
    change on resume.

    The stores are listed once: by the first rank where a process group of ``world_size`` is up (then making a loader is
    a collective), else by every rank, or not at all where ``plan`` is another loader's of the same config.

    Other objectives have other columns: of a classification ``labels`` are int64 ``[B]``, with ``token_type_ids`` where
    the tokenizer's models take them. With ``packing="none"`` ``T`` is the longest row of the batch (the next multiple
    of ``pad_to_multiple_of``), and ``attention_mask``, int64 ``[B, T]``, is 1 where a row has tokens. On request, by
    ``columns``: ``document_ids``, int32 ``[B, T]``, which piece of its row a token is of (-1: padding); ``cu_seqlens``,
    int32 ``[pieces + 1]``, where pieces begin in the batch laid end to end, and ``max_seqlen``, int32, the longest.

    On a finite stream all ranks of a process group hand out the same number of batches, if need be of empty rows (all
    labels -100), and take them alike: the last is the last one in which any rank has a row. Where one fails, the others
    get a :class:`~streamfeed.errors.RankError`. Ranks without a group end each by itself.

    ``profile`` is told what the loader and its workers do when. With ``provenance`` batches know which records they are
    made of, as :class:`~streamfeed.loader.provenance.TracedBatch` says; copies of a batch do not.

    Iterating continues after the last batch handed out; after the end of a finite stream it starts the next pass.
    Batches may share one piece of memory, each its own part: ``clone()`` a tensor before saving or pickling it, which
    would write the whole piece (at most 4 MB).
    """

    def __init__(
        self,
        config: StreamConfig,
        batch_size: int,
        *,
        num_workers: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        start_method: str | None = None,
        cache_dir: Path | None = None,
        plan: Plan | None = None,
        group: ProcessGroup | None = None,
        kept_states: int = KEPT_STATES,
        columns: Sequence[Column] = (),
        pad_to_multiple_of: int | None = None,
        profile: Profile | None = None,
        provenance: bool = False,
    ) -> None:
        if batch_size < 1 or num_workers < 0:
            raise ConfigError(
                f"batch_size must be at least 1 and num_workers at least 0, got {batch_size}, {num_workers}"
            )
        check_columns(config, columns, pad_to_multiple_of)
        self.config = config
        self.batch_size, self.num_workers, self.kept_states = batch_size, num_workers, kept_states
        self._ranks = Ranks.find(rank, world_size, group)
        self.rank, self.world_size = self._ranks.number, self._ranks.size
        warm = warm_up(start_method) if num_workers else None
        self._cache_dir = default_cache_dir() if cache_dir is None else cache_dir
        once = self._ranks.once
        self.stages = Stages() if profile is None else profile.stages
        with self.stages.list.busy:
            self._resolved = Resolved(config, once=once, plan=plan, cache_dir=self._cache_dir)
            planned = self._resolved.plan()
        self.stages.list.count(sum(len(source.shards) for source in planned.sources))
        self._verdict = once(lambda: verdict_for(config.objective, self.tokenizer, config.seq_len, self._cache_dir))
        self._voters = self._ranks.another() if config.epochs is not None and self._ranks.group else None
        self._stats = ReadStats(stages=self.stages)
        self._crew = Crew(self._stats, profile)
        self._opening = Opening(
            config=config,
            tokenizer=self.tokenizer,
            verdict=self._verdict,
            cache_dir=self._cache_dir,
            batch_size=batch_size,
            columns=tuple(columns),
            pad_to_multiple_of=pad_to_multiple_of,
            context=warm,
            threads=engine_threads(self._verdict, num_workers, cores_of_rank()) if num_workers else 1,
            crew=self._crew,
            stats=self._stats,
            voters=self._voters,
            recorded=profile is not None,
            provenance=provenance,
        )
        self._report = Report()
        self._use(planned)
        self._ranks.together(lambda: check(self._plan, self._share, num_workers, self.tokenizer))
        give_back()  # what loading a tokenizer took: some tens of MB

    @property
    def joined(self) -> bool:
        """Whether the ranks agree in a process group, on states and ends; True for a rank that is alone."""
        return self.world_size == 1 or self._ranks.group is not None

    @property
    def tokenizer(self) -> TokenizerSpec:
        """The tokenizer that the stream uses."""
        return self._resolved.tokenizer

    @property
    def plan(self) -> Plan:
        """The plan: sources, units, lanes and the fingerprint."""
        return self._plan

    @property
    def verdict(self) -> Verdict:
        """The tokenizer engine that encodes, and why it is that one."""
        return self._verdict

    def _use(self, plan: Plan) -> None:
        """Make ``plan`` the loader's, at the beginning of the stream."""
        self._plan = plan
        self._share = Share(plan.lanes, self.rank, self.world_size)
        if self._share.advice():
            logger.warning("%s", self._share.advice())
        self._start_at(StreamState(plan.fingerprint, versions=plan.versions()))

    def _start_at(self, state: StreamState) -> None:
        """Stand at ``state``; nothing is read before a batch is asked for."""
        self._crew.stop()
        self._turns: Turns | None = None
        self._ended = state.ended
        self._history = History(state, self.kept_states)

    # Iteration

    def __iter__(self) -> Iterator[Batch]:
        """Continue after the last batch handed out; begin the next pass when the last one has ended."""
        if self._ended:
            self._turns, self._ended = None, False
            self._history.restart(self._now().next_pass(self.config.epochs or 0))
        return self._iterate()

    def _iterate(self) -> Iterator[Batch]:
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> Batch | None:
        if self._ended:
            return None
        begin = self.stages.wait.busy.now()
        try:
            assembled = self._assembled()
        except BaseException:
            self._close_failed()
            raise
        finally:
            self.stages.wait.passed(begin)
        if assembled is None:
            return None
        batch, tokens, empty_rows, states = assembled
        self._report.count(batch["input_ids"].numel(), tokens, empty_rows)
        self._history.batch(states)
        return batch

    def _close_failed(self) -> None:
        """Close, since something is raised: what comes next starts again behind the last batch."""
        with suppress(RankError):  # where another rank is gone, what is raised here says more
            self.leave()
        self.close()

    def ready(self) -> bool:
        """Say whether the next batch can be handed out, or its error raised, without waiting for workers or ranks.

        No at the end of a pass, before the first batch after a start of the workers, and where there are none and rows
        must be made first.
        """
        if self._turns is None or self._ended:
            return False
        try:
            return self._turns.ready(self._history.now.batches)
        except BaseException:
            self._close_failed()
            raise

    def use_memory(self, make: Callable[[tuple[int, ...]], Tensor], pieces: int) -> None:
        """Put rows into ``pieces`` pieces of memory from the next start of the workers on, all of it allocated now.

        ``make`` returns an int64 tensor of a shape, on the host: pinned, for instance. A piece holds a few batches, at
        most 4 MB of them or one; it is taken again once nobody holds any of them.
        """
        self._opening.memory = group_memory(self.batch_size, self.config.seq_len, make, pieces)

    def leave(self) -> None:
        """Tell the other ranks, which may wait for this one's rows, that it takes no more batches of this pass.

        They get a :class:`~streamfeed.errors.RankError`, also those that have begun a pass when this one has not. There
        is nothing to tell where the stream repeats or a rank is alone. Iterate again only with a new loader.
        """
        if self._voters is not None:
            Votes.leave(self._voters)

    def _check_budget(self, states: tuple[bytes, ...]) -> None:
        """Stop when the lanes of this rank have together passed over more than any one of them may."""
        if self.config.on_error == "skip" and states != self._history.now.parts:
            check_budget(tally_of(states), self.config.skip_budget)

    def _assembled(self) -> Assembled | None:
        """Return the next batch of this rank, None at the end of the pass, which is noted; starts the workers."""
        if self._turns is None:
            if self._history.now.batches:
                self._history.restart(self._now())
            self._turns = self._opening.open(self._plan, self._share, self._history.now.base, self.num_workers)
        assembled = self._turns.next(self._history.now.batches)
        self._end() if assembled is None else self._check_budget(assembled.states)
        return assembled

    def _end(self) -> None:
        """Note the end of a finite pass, and what became of its records."""
        assert self._turns is not None
        states, now = self._turns.states(), self._history.now
        self._check_budget(states)
        if now.batches == 0 and now.base.rows == 0:
            raise no_row(tally_of(states), self.rank, self.world_size, agreed=self._voters is not None)
        self._history.end(states)
        self._ended = True
        self._report.passes_over(tally_of(states))
        self._crew.stop()
        self._report.waited = self._crew.waited
        if said := self._report.said():
            logger.info("pass %d ended; of what was read: %s", now.base.number, said)

    # State

    @property
    def batches(self) -> int:
        """The number of batches handed out since the loader was made, loaded or reset."""
        return self._history.now.number

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state as of the last batch handed out, or as of the ``batches``-th one.

        Batches are counted since the loader was made, loaded or reset. Plain JSON. A collective when a process group of
        this world size is up: call it on every rank; it then holds all lanes. Without one it holds this rank's lanes,
        and :func:`~streamfeed.merge_states` joins those of all ranks. The states of the last ``kept_states`` batches
        are kept: as many as a trainer looks ahead, and a few more.
        Raises :class:`StateError` for a batch that is not yet handed out, or too long ago.
        """
        return self._ranks.join_states(self._state(batches))

    def _state(self, batches: int | None) -> dict[str, Any]:
        mark = self._history.now if batches is None else self._history.find(batches)
        return mark.state(self.batch_size * self.world_size)

    def _now(self) -> StreamState:
        return StreamState.from_json(self._state(None))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where ``state`` was taken, on this topology.

        Raises :class:`StateError` where it is of another stream (naming what differs), lacks lanes, or is damaged; the
        loader then stands where it stood.
        """
        loaded = StreamState.from_json(state)
        plan = self._plan
        if loaded.lane_count != plan.lanes and self.config.lanes == "auto":
            plan = self._resolved.plan(loaded.lane_count)
        loaded.check(plan.fingerprint)
        for line in loaded.version_warnings(plan):
            logger.warning("%s", line)
        if plan is not self._plan:
            self._use(plan)
        self._start_at(replace(loaded, versions=plan.versions()))

    def reset(self) -> None:
        """Start over: the next batch is the first of the stream, and nothing is counted yet but bytes and retries."""
        self._report = Report()
        self._start_at(StreamState(self._plan.fingerprint, versions=self._plan.versions()))

    # Ending

    def report(self) -> Report:
        """Return what became of the data so far: a copy, of this rank."""
        if self._turns is not None:
            self._report.passes_over(tally_of(self._turns.states()))
        self._report.bytes_read = self._crew.bytes_read
        self._report.retries = self._resolved.retries + self._crew.retries
        self._report.waited, self._report.flow = self._crew.waited, self.flow()
        return self._report.copy()

    def flow(self) -> Flow:
        """Return where the time went so far, by process and stage: cheap, unlike :meth:`report`."""
        return Flow(self.stages.figures(), self._crew.figures)

    def close(self) -> None:
        """Stop the workers. The loader can go on: the next batch starts them again where it stands."""
        self._crew.stop()
        if self._turns is not None and not self._ended:
            self._report.passes_over(tally_of(self._turns.states()))
            self._turns = None

    def __enter__(self) -> Self:
        """Return the loader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers."""
        self.close()
