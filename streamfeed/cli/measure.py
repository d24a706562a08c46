"""What ``streamfeed bench`` measures: a stream without a model, at full speed or at the pace of training steps."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfeed.errors import EmptyStreamError
from streamfeed.loader.advice import suggest_workers
from streamfeed.loader.bottleneck import READING, Circumstances, find
from streamfeed.loader.loader import StreamLoader
from streamfeed.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.loader.advice import Suggestion
    from streamfeed.loader.bottleneck import Bottleneck
    from streamfeed.loader.flow import Flow
    from streamfeed.loader.memory import Batch
    from streamfeed.train.config import RunConfig

__all__ = ["WARM_UP_STEPS", "Faults", "Measured", "StageCost", "measure", "stage_costs"]

WARM_UP_STEPS = 20
"""Steps that are not counted where steps have a length: queues fill, and the first windows are read."""

_LOOK_AT_MEMORY_S = 0.5
_NS = 1e9


@dataclass(frozen=True)
class StageCost:
    """A stage over all processes: seconds at work, for input, and for room; ``share`` of all the seconds at work.

    ``s_per_million_tokens`` are seconds at work. ``items`` and ``bytes`` are those of
    :class:`~streamfeed.stages.Stages`; ``retries`` of requests, ``skips`` of records.
    """

    busy_s: float
    starved_s: float
    blocked_s: float
    items: int
    bytes: int
    share: float
    s_per_million_tokens: float
    retries: int = 0
    skips: int = 0


@dataclass(frozen=True)
class Measured:
    """One measurement. ``data_wait_pct`` is the share of the time that a trainer would have waited for batches.

    Seconds, tokens, stages and faults are those from the first batch on, or from the step behind the warm-up. Memory is
    that of this process and its workers, what they share counted once; None where the system does not say.
    """

    num_workers: int
    seconds: float
    batches: int
    tokens: int
    tokens_per_s: float
    data_wait_pct: float
    first_batch_s: float
    peak_rss_mb: float | None
    bottleneck: Bottleneck
    stages: dict[str, StageCost]
    suggested: Suggestion

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON; ``bottleneck`` is the stage's name, ``why`` and ``advice`` say more."""
        found = asdict(self)
        del found["bottleneck"], found["suggested"]
        stage, _, why, advice = self.bottleneck
        found |= {"bottleneck": stage, "why": why, "advice": advice}
        return found | {"suggested_num_workers": self.suggested.workers, "suggested_because": self.suggested.why}


def measure(config: RunConfig, num_workers: int, seconds: float, step_ms: float) -> Measured:
    """Stream for ``seconds`` with ``num_workers``, on one rank, sleeping for ``step_ms`` with each batch.

    Without steps the stream runs at full speed, and every moment is one of waiting for it. Raises what streaming
    raises, and :class:`~streamfeed.errors.EmptyStreamError` where a finite stream ends before anything is measured.
    """
    begin = time.perf_counter()
    with StreamLoader(
        config.stream(),
        config.loader.batch_size,
        num_workers=num_workers,
        rank=0,
        world_size=1,
        pad_to_multiple_of=config.loader.pad_to_multiple_of,
    ) as loader:
        pace = _Pace(iter(loader), step_ms / 1000)
        pace.step()
        first_batch_s = time.perf_counter() - begin
        pace.steps(WARM_UP_STEPS if step_ms else 0)
        flow, before = loader.flow(), loader.report()
        pace.begin()
        pace.steps_for(seconds)
        flow, report = loader.flow().since(flow), loader.report()
        tokens = report.tokens - before.tokens
        faults = Faults(report.retries - before.retries, report.tally.skipped - before.tally.skipped)
        if not tokens:
            raise EmptyStreamError("the stream ended before anything was measured: give more data, or data.epochs null")
        here, stages = Circumstances.of(loader), stage_costs(flow, tokens, faults)
        return Measured(
            num_workers=loader.num_workers,
            seconds=pace.spent,
            batches=pace.batches,
            tokens=tokens,
            tokens_per_s=tokens / pace.spent,
            data_wait_pct=100 * pace.waited / pace.spent,
            first_batch_s=first_batch_s,
            peak_rss_mb=pace.peak_bytes / 1e6 if pace.peak_bytes else None,
            bottleneck=find(flow, pace.waited, pace.spent, here),
            stages=stages,
            suggested=_suggestion(stages, tokens, tokens / pace.batches, step_ms, here),
        )


def _suggestion(
    stages: dict[str, StageCost], tokens: int, of_a_batch: float, step_ms: float, here: Circumstances
) -> Suggestion:
    """Return how many workers to take, from what one can do: its reading thread is the one that works most."""
    takes = sum(stages[name].busy_s for name in READING if name in stages)
    takes += stages["read"].starved_s if "read" in stages else 0.0
    return suggest_workers(
        here.cores,
        here.slots,
        worker_tokens_per_s=tokens / takes if takes else None,
        training_tokens_per_s=of_a_batch / step_ms * 1000 if step_ms else None,
    )


class _Pace:
    """Takes batches, sleeps ``step_s`` behind each, and keeps time and the highest memory."""

    def __init__(self, batches: Iterator[Batch], step_s: float) -> None:
        self._batches = batches
        self._step_s = step_s
        self._looked = 0.0
        self.peak_bytes = 0
        self.begin()

    def begin(self) -> None:
        """Count from here."""
        self._begin = time.perf_counter()
        self.waited = self.spent = 0.0
        self.batches = 0

    def steps(self, count: int) -> None:
        """Take so many batches."""
        for _ in range(count):
            self.step()

    def steps_for(self, seconds: float) -> None:
        """Take batches for so long, or until there are no more."""
        while self.spent < seconds and self.step():
            pass

    def step(self) -> bool:
        """Take a batch; False where there are no more."""
        begin = time.perf_counter()
        batch = next(self._batches, None)
        now = time.perf_counter()
        self.waited += now - begin
        if batch is not None:
            self.batches += 1
            if now - self._looked > _LOOK_AT_MEMORY_S:
                self._looked = now
                self.peak_bytes = max(self.peak_bytes, _memory())
            rest = self._step_s - (time.perf_counter() - now)
            if rest > 0:  # even a sleep of nothing lets the reading thread go first, and would count as training
                time.sleep(rest)
        self.spent = time.perf_counter() - self._begin
        return batch is not None


class Faults(NamedTuple):
    """Requests that were repeated, and bad records that were passed over."""

    retries: int = 0
    skips: int = 0


def stage_costs(flow: Flow, tokens: int, faults: Faults) -> dict[str, StageCost]:
    """Return what each stage cost over all processes, in the order of the flow, each fault with who met it.

    Requests run beside each other, and waiting is no work: neither has a share.
    """
    total = flow.total()
    busy = sum(work.busy_ns for name, work in total.items() if name not in _NO_WORK)
    retries = {"fetch" if any(total["fetch"]) else "read": faults.retries}
    skips = {"decode": faults.skips}
    costs = {}
    for name, work in zip(STAGES, total.works, strict=True):
        if not (any(work) or retries.get(name) or skips.get(name)):
            continue
        costs[name] = StageCost(
            busy_s=work.busy_ns / _NS,
            starved_s=work.starved_ns / _NS,
            blocked_s=work.blocked_ns / _NS,
            items=work.items,
            bytes=work.bytes,
            share=0.0 if name in _NO_WORK else work.busy_ns / max(1, busy),
            s_per_million_tokens=work.busy_ns / _NS / tokens * 1e6,
            retries=retries.get(name, 0),
            skips=skips.get(name, 0),
        )
    return costs


_NO_WORK = frozenset({"fetch", "wait"})


def _memory() -> int:
    """Return the bytes of memory of this process and its workers, what they share once; 0 where nobody says."""
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    page = os.sysconf("SC_PAGE_SIZE")
    private, shared = 0, [0]
    for pid in pids:
        with suppress(OSError):  # a worker may end, and not every system has /proc
            resident, common = map(int, Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1:3])
            private += resident - common
            shared.append(common)
    return (private + max(shared)) * page
