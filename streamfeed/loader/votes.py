"""Where a finite pass ends, agreed by all ranks before any of them needs to know.

The last batch of a pass is that of the rank whose rows end last. Every few batches each rank tells how many it knows to
have, or that there are no more; the largest number holds for all. The question is put ahead of time, behind half of the
batches that are known, and its answer is waited for when they are used up, so that training seldom waits for it. All
ranks ask behind the same batches, since they compute those from the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streamfeed.errors import RankError

if TYPE_CHECKING:
    from streamfeed.loader.assembly import Assembled, Assembler
    from streamfeed.topology import Asked, Ranks

__all__ = ["Turns", "Votes"]


class Own(Protocol):
    """What a rank knows of its own batches."""

    def known(self, *, wait: bool) -> tuple[int, bool]:
        """Return how many batches it has at least, counted from the first, and whether there are no more.

        ``wait``: until there is one more than were handed out, or the end is known.
        """


class Votes:
    """The votes of one rank in one pass; ``run`` tells how often its workers were started, the same on every rank.

    All ranks take the same number of batches, and :meth:`exists` is asked for each in turn. ``ranks`` has a group that
    is used for nothing else: an answer may be on its way while ranks agree on something else.
    """

    def __init__(self, ranks: Ranks, own: Own, run: int) -> None:
        self._ranks = ranks
        self._own = own
        self._run = run
        self._known = 0
        self._end: int | None = None
        self._ask_at = 0
        self._asked: Asked | None = None

    def exists(self, batch: int) -> bool:
        """Say whether any rank has a row in its ``batch``-th batch or behind it; may wait for the other ranks.

        Raises :class:`~streamfeed.errors.RankError` where one has failed or left, or takes other batches than this one.
        """
        while self._end is None and batch >= self._known:
            if self._asked is None:
                self._ask(batch, wait=True)
            self._hear(batch)
        if self._end is None and self._asked is None and batch >= self._ask_at:
            self._ask(batch, wait=False)
        return self._end is None or batch < self._end

    def ready(self, batch: int) -> bool:
        """Say whether :meth:`exists` would say yes to ``batch``, or raise, without waiting.

        An answer that has arrived is looked at, and heard where the other ranks hear it: at the same batch.
        """
        if self._end is not None:
            return batch < self._end
        if batch < self._known:
            return True
        if self._asked is None or not self._asked.arrived():
            return False
        try:
            count, _, left, largest, smallest = self._asked.answer()
        except RankError:
            return True
        return batch < count or bool(left) or largest != -smallest

    @staticmethod
    def leave(ranks: Ranks) -> None:
        """Tell the others, who wait for this rank's next vote or will, that it takes no more batches."""
        ranks.ask_largest([0, 1, ranks.number + 1, 0, 0])

    def _ask(self, batch: int, *, wait: bool) -> None:
        count, ended = self._own.known(wait=wait)
        place = (self._run << 40) + batch
        self._asked = self._ranks.ask_largest([count, not ended, 0, place, -place])

    def _hear(self, batch: int) -> None:
        assert self._asked is not None
        count, more, left, largest, smallest = self._asked.answer()
        self._asked = None
        if left:
            raise RankError(f"rank {left - 1} failed, or left the stream in the middle; its own message says why")
        if largest != -smallest:
            raise RankError(
                f"ranks have taken different numbers of batches (this one {batch}); on a finite stream all ranks take "
                "the same, and start over or load a state together"
            )
        if not more:
            self._end = count
        self._known = max(self._known, count)
        self._ask_at = self._known - max(1, (self._known - batch) // 2)


class Turns:
    """The batches of one rank in one pass, one after another; ``votes`` where the ranks agree on its end."""

    def __init__(self, reader: Assembler, votes: Votes | None) -> None:
        self._reader = reader
        self._votes = votes

    def next(self, batch: int) -> Assembled | None:
        """Return the ``batch``-th, an empty one once only other ranks have rows, and None at the end."""
        if self._votes is None:
            return self._reader.next()
        if not self._votes.exists(batch):
            return None
        return self._reader.next() or self._reader.empty()

    def states(self) -> tuple[bytes, ...]:
        """Return each worker's lanes' states, as JSON, at or before the last row read."""
        return self._reader.states()

    def ready(self, batch: int) -> bool:
        """Say whether :meth:`next` has one, or an error, without waiting for workers or other ranks."""
        if self._votes is None:
            return self._reader.ready()
        return self._votes.ready(batch) and self._reader.ready(blank=True)
