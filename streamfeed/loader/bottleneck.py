"""Which stage holds the others up, and which knob to turn.

A pipeline is as fast as its slowest stage, and that one shows in what the others do: those in front of it wait for
room, those behind it for input. So it is looked for from the end: does training wait for data at all; if so, for the
batches to be put together or for a worker; and there, for the thread that packs and sends or the one that reads and
encodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.dataset.share import Share
from streamfeed.loader.advice import room_for_workers
from streamfeed.storage.urls import is_remote
from streamfeed.topology import cores_of_rank

if TYPE_CHECKING:
    from streamfeed.loader.flow import Flow
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.stages import Figures

__all__ = ["NOT_WORTH_A_WORD", "READING", "Bottleneck", "Circumstances", "Watch", "find"]

NOT_WORTH_A_WORD = 0.02
"""Where training waits for data for less than this share of its time, training is what takes the time."""

_MOST_FASTER = 4.0
"""No more workers than so many times those there are get suggested at once: what was measured says no more."""

READING = ("read", "decompress", "decode", "shuffle", "map", "encode")
"""What the thread of a worker does that reads and encodes ahead."""

_HANDING = ("pack", "send")
_OWN = ("receive", "assemble", "copy")


@dataclass(frozen=True)
class Circumstances:
    """What an advice depends on of a loader and its machine.

    ``slots``: lanes of this rank, the most workers that it can use. ``engine`` and ``why`` are the tokenizer engine's.
    """

    workers: int = 0
    cores: int = 1
    slots: int = 1
    ranks: int = 1
    remote: bool = False
    engine: str = "fastokens"
    why: str = ""

    @classmethod
    def of(cls, loader: StreamLoader) -> Circumstances:
        """Return those of ``loader``."""
        slots = Share(loader.plan.lanes, loader.rank, loader.world_size).slots
        return cls(
            workers=min(loader.num_workers, slots),
            cores=cores_of_rank(),
            slots=slots,
            ranks=loader.world_size,
            remote=any(is_remote(uri) for source in loader.config.sources for uri in source.uris),
            engine=loader.verdict.engine,
            why=loader.verdict.reason,
        )


class Bottleneck(NamedTuple):
    """The stage that holds the others up, ``share``: of its thread's time, and in words why, and the knob to turn.

    One of :data:`~streamfeed.stages.STAGES`, ``training``, ``start`` (workers are not up yet) or ``other ranks``.
    """

    stage: str
    share: float
    why: str
    advice: str

    def __str__(self) -> str:
        """Return all of it as one line."""
        return f"{self.stage}: {self.why}" + (f"; {self.advice}" if self.advice else "")


class Watch:
    """Finds the bottleneck of each stretch of time between two calls of :meth:`lap`."""

    def __init__(self, loader: StreamLoader) -> None:
        self._loader = loader
        self._before = loader.flow()

    def lap(self, waited_s: float, seconds: float) -> Bottleneck:
        """Return the bottleneck since the last lap, in which training waited ``waited_s`` of ``seconds``."""
        now = self._loader.flow()
        flow, self._before = now.since(self._before), now
        return find(flow, waited_s, seconds, Circumstances.of(self._loader))


def find(flow: Flow, waited_s: float, seconds: float, here: Circumstances) -> Bottleneck:
    """Return the bottleneck of a stretch of ``seconds``, of which training waited ``waited_s`` for data."""
    if waited_s <= NOT_WORTH_A_WORD * seconds:
        share = 1 - waited_s / seconds if seconds else 1.0
        return Bottleneck("training", share, f"data is ready before it is asked for ({1 - share:.1%} of waiting)", "")
    if here.ranks > 1 and flow.trainer["wait"].busy_ns / 1e9 < waited_s / 2:
        return Bottleneck(
            "other ranks", 1.0, "this rank's data is there, and that of another one is not", "see its log"
        )
    stage, times = _slowest(flow)
    if stage is None:
        return Bottleneck("start", 1.0, "the workers are only starting, or reading what is to be shuffled first", "")
    share = times[stage] / max(1, sum(times.values()))
    whose = "the training process" if not flow.workers or stage in _OWN else "a worker"
    faster = min(_MOST_FASTER, seconds / max(seconds - waited_s, 1e-9))
    return Bottleneck(stage, share, f"{share:.0%} of the time of {whose}, {_SAYS[stage]}", _advice(stage, faster, here))


def _slowest(flow: Flow) -> tuple[str | None, dict[str, int]]:
    """Return the stage, None where nothing was done yet; and what takes its thread's time, in nanoseconds by stage."""
    trainer = flow.trainer
    if not flow.workers:
        times = {stage: _spent(trainer, stage) for stage in (*READING, *_HANDING, *_OWN)}
        return max(times, key=times.__getitem__), times
    own = {stage: trainer[stage].busy_ns for stage in _OWN}
    if trainer["receive"].starved_ns < sum(own.values()):
        return max(own, key=own.__getitem__), own
    worker = min(flow.workers, key=lambda one: one["send"].blocked_ns)  # the others wait for training to take rows
    handing = {stage: worker[stage].busy_ns for stage in _HANDING}
    reading = {stage: _spent(worker, stage) for stage in READING}
    if sum(handing.values()) + sum(reading.values()) < trainer["receive"].starved_ns / 4:
        return None, {}
    if worker["pack"].starved_ns < sum(handing.values()):
        return max(handing, key=handing.__getitem__), handing | {"blocked": worker["send"].blocked_ns}
    return max(reading, key=reading.__getitem__), reading | {"blocked": worker["encode"].blocked_ns}


def _spent(figures: Figures, stage: str) -> int:
    """Return what a stage took of its own thread; one that reads also spends the time in which it waits for a store."""
    return figures[stage].busy_ns + (figures["read"].starved_ns if stage == "read" else 0)


_SAYS = {
    "read": "reading shards",
    "decompress": "decompressing",
    "decode": "making records of bytes",
    "shuffle": "gathering and ordering windows",
    "map": "in your map function",
    "encode": "in the tokenizer",
    "pack": "packing rows",
    "send": "writing rows into messages",
    "receive": "taking messages",
    "assemble": "putting batches together",
    "copy": "copying batches to the device",
}


def _advice(stage: str, faster: float, here: Circumstances) -> str:
    if stage == "copy":
        return "copy from pinned memory: with a DevicePrefetcher"
    if stage in _OWN:
        return "ask for fewer columns, or train with larger batches: the training process itself does this"
    room = here.slots if stage == "read" else room_for_workers(here.cores)  # waiting for a store takes no core
    most = min(here.slots, room)
    return ", or ".join(part for part in (_workers(faster, most, here), _of_stage(stage, here)) if part)


def _workers(faster: float, most: int, here: Circumstances) -> str:
    """Say how many workers would do, as far as cores and lanes go."""
    if here.workers < most:
        wanted = max(here.workers + 1, math.ceil(here.workers * faster))
        return f"raise loader.num_workers from {here.workers} to {min(wanted, most)}"
    if here.workers >= here.slots:
        return f"begin the run with more data.lanes: each of the {here.slots} of this rank has a worker"
    return f"give this rank more cores: all {here.cores} are in use"


def _of_stage(stage: str, here: Circumstances) -> str:
    if stage == "encode" and here.engine != "fastokens":
        return f"use a tokenizer that the fast engine can run (this one runs on {here.engine}: {here.why})"
    return {
        "read": "bring the shards nearer" if here.remote else "put them on a faster disk",
        "decompress": "convert the shards to zstd or Parquet, which decompress several times faster than gzip",
        "decode": "convert the shards to Parquet, of which only the fields in use are decoded",
        "shuffle": "shuffle less: data.shuffle_buffer",
        "map": "make the function cheaper (batched=True saves calls)",
        "pack": "use data.packing concat, the cheapest",
    }.get(stage, "")
