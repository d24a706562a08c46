"""``metrics.jsonl``, ``summary.json`` and the clock that says how long training waited for data."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from streamfeed.train.atomic import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Meter", "MetricsLog", "cut_metrics", "read_metrics"]


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
        self._total = _Span(clock())
        self._lap = _Span(clock())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for data."""
        begin = self._clock()
        try:
            yield
        finally:
            spent = self._clock() - begin
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

    def lap(self) -> dict[str, float]:
        """Return ``tokens_per_s`` and ``data_wait_pct`` since the last lap, and begin a new one."""
        now = self._clock()
        figures = self._lap.figures(now)
        self._lap = _Span(now)
        del figures["seconds"]
        return figures

    def total(self) -> dict[str, float]:
        """Return ``seconds``, ``tokens_per_s`` and ``data_wait_pct`` since the start."""
        return self._total.figures(self._clock())


@dataclass
class _Span:
    start: float
    waited: float = 0.0
    tokens: int = 0

    def figures(self, now: float) -> dict[str, float]:
        seconds = max(now - self.start, 1e-9)
        return {
            "seconds": seconds,
            "tokens_per_s": self.tokens / seconds,
            "data_wait_pct": 100.0 * self.waited / seconds,
        }
