"""What the pipeline did when: a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, a track for every worker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from streamfeed.stages import Clock, Stages, read_recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_SPANS", "Profile"]

MOST_SPANS = 500_000
"""Spans kept, some 60 MB of file: minutes of a pipeline at full speed, hours of one that waits for training."""

_TRAINER = 0
_THREADS = {"trainer": ("training", "data"), "worker": ("read, encode ahead", "pack, send")}


class Profile:
    """Collects spans from its making on, the first ``most`` of them; ``dropped`` counts the others.

    ``stages`` are the trainer's own, which the loader counts in. Times are those of the machine's monotonic clock, the
    same in all processes of it.
    """

    def __init__(self, most: int = MOST_SPANS) -> None:
        self._begin_ns = time.perf_counter_ns()
        self.stages = Stages(Clock(record=True))
        self._most = most
        self._spans: list[tuple[int, int, str, int, int]] = []
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._spans)

    def worker(self, number: int, threads: Sequence[bytes]) -> None:
        """Add what the threads of worker ``number`` recorded: that which reads, and that which packs and sends."""
        for thread, spans in enumerate(threads):
            self._add(number + 1, thread, spans)
        self._collect()

    def step(self, name: str, begin_ns: int, spent_ns: int) -> None:
        """Add a span of training itself."""
        self._collect()
        self._put(_TRAINER, 0, name, begin_ns, spent_ns)

    def _collect(self) -> None:
        """Add what this process recorded of its data."""
        self._add(_TRAINER, 1, self.stages.take_recorded())

    def _add(self, process: int, thread: int, spans: bytes) -> None:
        for span in read_recorded(spans):
            name = span.stage if span.kind == "busy" else f"{span.stage} {span.kind}"
            self._put(process, thread, name, span.begin_ns, span.spent_ns)

    def _put(self, process: int, thread: int, name: str, begin_ns: int, spent_ns: int) -> None:
        if len(self._spans) < self._most:
            self._spans.append((process, thread, name, begin_ns, spent_ns))
        else:
            self.dropped += 1

    def to_json(self) -> bytes:
        """Return the trace in Chrome's event format; times in microseconds since the profile was made."""
        self._collect()
        seen = sorted({(process, thread) for process, thread, *_ in self._spans})
        events: list[dict[str, Any]] = []
        for process in sorted({process for process, _ in seen}):
            name = "trainer" if process == _TRAINER else f"worker {process - 1}"
            events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
            events.append({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})
        for process, thread in seen:
            name = _THREADS["trainer" if process == _TRAINER else "worker"][thread]
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}})
        events += (
            {
                "ph": "X",
                "name": name,
                "cat": name.partition(" ")[0],
                "pid": process,
                "tid": thread,
                "ts": (begin - self._begin_ns) / 1e3,
                "dur": spent / 1e3,
            }
            for process, thread, name, begin, spent in self._spans
        )
        return orjson.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"dropped": self.dropped}})
