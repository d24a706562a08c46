"""Mixing: which source a lane takes its next document from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.lane.ahead import Ahead
    from streamfeed.lane.runs import Run
    from streamfeed.lane.state import SourceState
    from streamfeed.stats import Tally

__all__ = ["Mixer"]


@dataclass(slots=True)
class _Feed:
    """One source of the lane: its coming runs, the run in hand, how many samples of that were taken, its place."""

    runs: Ahead[Run]
    weight: float
    state: SourceState
    run: Run | None = None
    taken: int = 0


class Mixer:
    """Hands out runs: whole ones of a single source; else one sample at a time, of the source furthest behind.

    A source is behind by ``due - tokens``: what its weight entitles it to of all tokens taken so far, less what was
    taken from it. Deterministic, ties go to the first source. A source that ends (in a finite pass) drops out.
    """

    def __init__(
        self, runs: Sequence[Ahead[Run]], weights: Sequence[float], states: Sequence[SourceState], tally: Tally
    ) -> None:
        self._feeds = [_Feed(*feed) for feed in zip(runs, weights, states, strict=True)]
        self.tally = tally
        """what became of the records of every window entered"""

    def start(self) -> None:
        """Begin reading ahead in every source."""
        for feed in self._feeds:
            feed.runs.start()

    def states(self) -> list[SourceState]:
        """Return where every source stands behind the last run taken."""
        return [feed.state for feed in self._feeds]

    def take(self, current: int = -1) -> Run | None:
        """Return the next run, or None when every source has ended.

        ``current`` is the source whose document is open after a resume: it goes on before anything is chosen.
        """
        if len(self._feeds) == 1:
            return self._whole(self._feeds[0])
        while True:
            index = current if current >= 0 else self._furthest_behind()
            if index < 0:
                return None
            run = self._sample(self._feeds[index])
            if run is not None:
                return run

    def _next_run(self, feed: _Feed) -> Run | None:
        run = feed.runs.take()
        if run is not None and run.entered is not None:
            self.tally.add(run.entered)
        return run

    def _whole(self, feed: _Feed) -> Run | None:
        """Take all of the next run."""
        run = self._next_run(feed)
        if run is not None:
            first = int(run.offsets[1]) if run.counted else 0
            feed.state = run.position(feed.state, len(run), int(run.offsets[-1]) - first)
            run.tell(self.tally, -1, 0)
        return run

    def _furthest_behind(self) -> int:
        live = [index for index, feed in enumerate(self._feeds) if not feed.state.ended]
        if not live:
            return -1
        return max(live, key=lambda index: (self._feeds[index].state.due - self._feeds[index].state.tokens, -index))

    def _sample(self, feed: _Feed) -> Run | None:
        """Cut the next sample off the feed's run; None where the feed has ended, or all feeds need another look."""
        if feed.run is None or feed.taken >= len(feed.run):
            feed.run, feed.taken = self._next_run(feed), 0
            if feed.run is None:
                feed.state = replace(feed.state, ended=True)
                return None
        run, index = feed.run, feed.taken
        feed.taken += 1
        if index >= len(run):
            run.tell(self.tally, -1, 0)
            feed.state = run.position(feed.state, 0)
            return None
        single = run.sample(index)
        run.tell(self.tally, index + 1, index)
        self._count(feed, 0 if single.counted else len(single.ids))
        feed.state = single.position(feed.state, 1)
        return single if len(single.ids) else None

    def _count(self, feed: _Feed, tokens: int) -> None:
        """Charge ``tokens`` to ``feed``, and entitle every live source to its share of them."""
        total = sum(other.weight for other in self._feeds if not other.state.ended)
        for other in self._feeds:
            if not other.state.ended:
                other.state = replace(other.state, due=other.state.due + tokens * other.weight / total)
        feed.state = replace(feed.state, tokens=feed.state.tokens + tokens)
