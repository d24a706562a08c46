"""Where the time goes: seconds, items and bytes of every stage of the pipeline, counted at every hand-over.

Each thread has one :class:`Stages`. Its time is charged to one account at a time: a span inside another one takes the
time from it, so that the accounts of a thread add up to no more than the clock. That costs a microsecond or two a span,
and there are some dozens for a megabyte of text.
"""

from __future__ import annotations

import array
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NOTHING", "STAGES", "Clock", "Figures", "Recorded", "Span", "Stage", "Stages", "Work", "read_recorded"]


class Work(NamedTuple):
    """What a stage did: nanoseconds at work, waiting for input, and waiting for room; what it handled.

    What an item and a byte are differs by stage, see :class:`Stages`.
    """

    busy_ns: int = 0
    starved_ns: int = 0
    blocked_ns: int = 0
    items: int = 0
    bytes: int = 0


class Recorded(NamedTuple):
    """One span as it happened, in nanoseconds of this machine's monotonic clock; ``kind`` as in :class:`Stage`."""

    stage: str
    kind: str
    begin_ns: int
    spent_ns: int


class Clock:
    """The time of one thread. ``recorded`` holds the spans that have ended, where they are asked for, else None."""

    __slots__ = ("now", "open", "recorded", "since")

    def __init__(self, now: Callable[[], int] = perf_counter_ns, *, record: bool = False) -> None:
        self.now = now
        self.open: list[tuple[Span, int]] = []
        self.since = 0
        self.recorded: list[tuple[int, int, int]] | None = [] if record else None


class Span:
    """An account of time: what is spent inside ``with`` is charged to it, but for the spans inside."""

    __slots__ = ("_clock", "code", "ns")

    def __init__(self, clock: Clock, code: int) -> None:
        self._clock = clock
        self.code = code
        self.ns = 0

    def __enter__(self) -> None:
        clock = self._clock
        now = clock.now()
        around = clock.open
        if around:
            around[-1][0].ns += now - clock.since
        around.append((self, now))
        clock.since = now

    def __exit__(self, *_: object) -> None:
        clock = self._clock
        now = clock.now()
        self.ns += now - clock.since
        clock.since = now
        ended, begun = clock.open.pop()
        while ended is not self:  # a signal came between the lines of a span inside
            ended, begun = clock.open.pop()
        if clock.recorded is not None:
            clock.recorded.append((self.code, begun, now - begun))

    def now(self) -> int:
        """Return what the clock shows, in nanoseconds."""
        return self._clock.now()

    def add(self, begin_ns: int, spent_ns: int) -> None:
        """Charge time that has passed, beside what this thread's spans are charged."""
        self.ns += spent_ns
        if self._clock.recorded is not None:
            self._clock.recorded.append((self.code, begin_ns, spent_ns))


_KINDS = ("busy", "starved", "blocked")


class Stage:
    """One stage's accounts in one thread."""

    __slots__ = ("blocked", "busy", "bytes", "items", "starved")

    def __init__(self, clock: Clock, number: int) -> None:
        self.busy, self.starved, self.blocked = (
            Span(clock, number * len(_KINDS) + kind) for kind in range(len(_KINDS))
        )
        self.items = 0
        self.bytes = 0

    def count(self, items: int, nbytes: int = 0) -> None:
        """Count what was handled."""
        self.items += items
        self.bytes += nbytes

    def passed(self, begin_ns: int) -> None:
        """Count an item that took the time since ``begin_ns``, of the clock, whatever else that was charged to."""
        self.items += 1
        self.busy.add(begin_ns, self.busy.now() - begin_ns)


STAGES = (
    "list",
    "fetch",
    "read",
    "decompress",
    "decode",
    "shuffle",
    "map",
    "encode",
    "pack",
    "send",
    "receive",
    "assemble",
    "copy",
    "wait",
)
"""In the order of the flow."""


class Stages:
    """The accounts of one thread."""

    __slots__ = (*STAGES, "clock")

    list: Stage
    """listing and planning; items: shards"""
    fetch: Stage
    """requests to stores, by all threads that make them at once; items: requests, bytes: of storage"""
    read: Stage
    """reading local files (busy), and waiting for what is fetched (starved); bytes: of storage"""
    decompress: Stage
    """gzip and zstd; bytes: decompressed. Parquet and Arrow decompress while they decode"""
    decode: Stage
    """from bytes to records; items: records"""
    shuffle: Stage
    """gathering, hashing and ordering windows; items: documents, bytes: of text"""
    map: Stage
    """the user's function; items: records that it was given"""
    encode: Stage
    """the tokenizer and the objective; items: documents, bytes: of ids. Blocked: enough is encoded ahead"""
    pack: Stage
    """mixing, packing, hashes and states of rows; items: rows. Starved: waiting for encoded text"""
    send: Stage
    """writing rows into messages; items: messages, bytes: of ids. Blocked: waiting for the trainer to take one"""
    receive: Stage
    """taking messages; items: messages, bytes: of ids. Starved: waiting for a worker's next one"""
    assemble: Stage
    """from messages to batches, labels and positions; items: batches, bytes: of batches"""
    copy: Stage
    """queueing copies to the device; items: batches, bytes: of batches"""
    wait: Stage
    """all of the time that was spent to get the next batch, whatever for; items: batches"""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = Clock() if clock is None else clock
        for number, name in enumerate(STAGES):
            setattr(self, name, Stage(self.clock, number))

    def figures(self) -> Figures:
        """Return the accounts as they stand."""
        return Figures.of(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the accounts as they stand, to be sent."""
        stages: Iterator[Stage] = (getattr(self, name) for name in STAGES)
        values = [
            value for one in stages for value in (one.busy.ns, one.starved.ns, one.blocked.ns, one.items, one.bytes)
        ]
        return array.array("q", values).tobytes()

    def take_recorded(self) -> bytes:
        """Return the spans that have ended since the last call, to be sent; none where they are not recorded."""
        if not self.clock.recorded:
            return b""
        spans, self.clock.recorded = self.clock.recorded, []
        return array.array("q", [value for span in spans for value in span]).tobytes()


@dataclass(frozen=True, slots=True)
class Figures:
    """What the stages of a thread, of a process or of several did, in the order of :data:`STAGES`."""

    works: tuple[Work, ...]

    def __getitem__(self, stage: str) -> Work:
        """Return what ``stage`` did."""
        return self.works[STAGES.index(stage)]

    def __add__(self, other: Figures) -> Figures:
        """Add up two threads, or two times."""
        pairs = zip(self.works, other.works, strict=True)
        return Figures(tuple(Work(*map(int.__add__, mine, theirs)) for mine, theirs in pairs))

    def __sub__(self, other: Figures) -> Figures:
        """Return what was done since ``other``."""
        pairs = zip(self.works, other.works, strict=True)
        return Figures(tuple(Work(*map(int.__sub__, mine, theirs)) for mine, theirs in pairs))

    def items(self) -> Iterator[tuple[str, Work]]:
        """Yield the stages that did anything, by name."""
        for name, work in zip(STAGES, self.works, strict=True):
            if any(work):
                yield name, work

    @classmethod
    def of(cls, data: bytes) -> Figures:
        """Read what :meth:`Stages.to_bytes` wrote; of several, one behind the other, their sum; of none, zeros."""
        values = array.array("q", data).tolist()
        size = len(Work._fields)
        works = [Work(*values[place : place + size]) for place in range(0, len(values), size)]
        return sum((cls(tuple(works[i : i + len(STAGES)])) for i in range(0, len(works), len(STAGES))), NOTHING)


NOTHING = Figures((Work(),) * len(STAGES))


def read_recorded(data: bytes) -> Iterator[Recorded]:
    """Yield what :meth:`Stages.take_recorded` returned."""
    values = array.array("q", data).tolist()
    for code, begin, spent in zip(values[::3], values[1::3], values[2::3], strict=True):
        stage, kind = divmod(code, len(_KINDS))
        yield Recorded(STAGES[stage], _KINDS[kind], begin, spent)
