"""``metrics.jsonl``, ``summary.json`` and the clock that says how long training waited for data."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from streamfeed.train.atomic import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Lap", "Meter", "MetricsLog", "cut_metrics", "read_metrics"]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a metrics file; a last line that a kill has torn is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line.strip()]


def cut_metrics(path: Path, step: int) -> int:
    """Drop the lines after ``step``, so that a resumed run logs no step twice; return how many were dropped."""
    lines = read_metrics(path)
    kept = [line for line in lines if line["step"] <= step]
    if path.exists():
        write_file(path, "".join(json.dumps(line) + "\n" for line in kept))
    return len(lines) - len(kept)


class MetricsLog:
    """Appends one JSON line a logged step, flushed at once; ``path`` None keeps nothing (all ranks but the first).

    ``also`` gets every line that was kept.
    """

    def __init__(self, path: Path | None, also: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._file = path.open("a", encoding="utf-8") if path is not None else None
        self._also = also

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        """Append one line."""
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            if self._also is not None:
                self._also(line)

    def sync(self) -> None:
        """Make what was written survive a power cut, as the checkpoint beside it does."""
        if self._file is not None:
            os.fsync(self._file.fileno())


class Meter:
    """Tokens per second, and the share of the time that was spent waiting for the next batch.

    ``lap()`` gives the figures since the last lap, ``total()`` those since the start.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.taken = clock()
        """when the last wait for data ended"""
        self._total = Lap(clock())
        self._lap = Lap(clock())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for data."""
        begin = self._clock()
        try:
            yield
        finally:
            self.taken = self._clock()
            spent = self.taken - begin
            self._total.waited += spent
            self._lap.waited += spent

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the time inside out of all figures: it was not spent on training."""
        begin = self._clock()
        try:
            yield
        finally:
            spent = self._clock() - begin
            self._total.start += spent
            self._lap.start += spent

    def add(self, tokens: int) -> None:
        """Count tokens trained on."""
        self._total.tokens += tokens
        self._lap.tokens += tokens

    def lap(self) -> Lap:
        """Return the figures since the last lap, and begin a new one."""
        lap, now = self._lap, self._clock()
        self._lap = Lap(now)
        return lap.ended(now)

    def total(self) -> Lap:
        """Return the figures since the start."""
        return self._total.ended(self._clock())


@dataclass
class Lap:
    """A stretch of training: seconds in all, seconds of it that were spent waiting for data, and tokens trained on."""

    start: float
    waited: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    def ended(self, now: float) -> Lap:
        """Return the lap as it ends ``now``."""
        return replace(self, seconds=max(now - self.start, 1e-9))

    def figures(self) -> dict[str, float]:
        """Return ``tokens_per_s`` and ``data_wait_pct``."""
        return {"tokens_per_s": self.tokens / self.seconds, "data_wait_pct": 100.0 * self.waited / self.seconds}
