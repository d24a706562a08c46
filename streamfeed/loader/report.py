"""What became of the data that one rank has read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import orjson

from streamfeed.errors import BudgetError, EmptyStreamError
from streamfeed.loader.flow import Flow
from streamfeed.stats import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Report", "Waited", "check_budget", "no_row", "tally_of"]

SLOW_S = 0.5
"""Seconds of waiting for one worker that are worth a word."""


class Waited(NamedTuple):
    """Seconds that the trainer waited for one worker's rows, and that the worker waited for room for them."""

    trainer_s: float = 0.0
    worker_s: float = 0.0


@dataclass
class Report:
    """Counts of one rank.

    ``tally`` is of the records behind the rows (at or before the last message); the rest is of the batches handed out:
    ``tokens`` that count, ``padding`` that does not, ``empty_rows`` of lanes that have ended. Reading took
    ``bytes_read`` of storage, and ``retries``: requests repeated because a store failed, those of the listing included.
    ``waited``: by worker, who waited for whom; ``flow``: where the time went, by process and stage.
    """

    batches: int = 0
    tokens: int = 0
    padding: int = 0
    empty_rows: int = 0
    bytes_read: int = 0
    retries: int = 0
    tally: Tally = field(default_factory=Tally)
    waited: tuple[Waited, ...] = ()
    flow: Flow = field(default_factory=Flow)

    def count(self, room: int, tokens: int, empty_rows: int) -> None:
        """Count a batch that had room for ``room`` tokens."""
        self.batches += 1
        self.tokens += tokens
        self.padding += room - tokens
        self.empty_rows += empty_rows

    def passes_over(self, tally: Tally) -> None:
        """Take the newest tally of the lanes."""
        self.tally = tally

    def copy(self) -> Report:
        """Return an independent copy."""
        return replace(self, tally=self.tally.copy())

    @property
    def utilisation(self) -> float:
        """The share of the batches' room that holds tokens; 1 before the first batch."""
        return self.tokens / (self.tokens + self.padding) if self.tokens else 1.0

    def summary(self) -> str:
        """Say in one line what did not become trained tokens; empty when everything did."""
        parts = [self.tally.dropped()]
        if self.tally.truncated:
            parts.append(f"{self.tally.truncated:,} samples truncated to a row")
        if self.padding:
            parts.append(f"{self.padding:,} tokens of padding ({1 - self.utilisation:.1%} of the room)")
        if self.empty_rows:
            parts.append(f"{self.empty_rows:,} empty rows")
        return ", ".join(part for part in parts if part)

    def remarks(self) -> str:
        """Say in one line what became of tokens that are trained on, if it was not the usual; empty where it was."""
        return ", ".join(part for part in (self.tally.remarks(), self.slow_worker()) if part)

    def slow_worker(self) -> str:
        """Name the worker that all others, and training, have waited for; empty where there is none.

        Rows of all workers alternate, so that one that is slow holds up all. Waiting for one is no proof: of workers
        that are equally slow it is the first that is waited for. The others must have had no room for more.
        """
        if len(self.waited) < 2:
            return ""
        number, slow = max(enumerate(self.waited), key=lambda pair: pair[1].trainer_s)
        others = [one for index, one in enumerate(self.waited) if index != number]
        if slow.trainer_s < SLOW_S or any(one.worker_s < slow.trainer_s / 4 for one in others):
            return ""
        if slow.worker_s > slow.trainer_s / 4:
            return ""
        return (
            f"waited {slow.trainer_s:.1f} s for worker {number} of {len(self.waited)}, while the other(s) had "
            f"{min(one.worker_s for one in others):.1f} s to spare"
        )

    def said(self) -> str:
        """Say both in one line; empty where there is nothing to say."""
        lost = self.summary()
        return "; ".join(part for part in (lost and f"not trained on: {lost}", self.remarks()) if part)


def tally_of(states: Iterable[bytes]) -> Tally:
    """Add up the tallies in lanes' states, each part the JSON of some lanes by number."""
    total = Tally()
    for part in states:
        for lane in orjson.loads(part).values():
            total.add(Tally(**lane["tally"]))
    return total


def check_budget(tally: Tally, budget: int) -> None:
    """Raise :class:`~streamfeed.errors.BudgetError` where more than ``budget`` records and shards were bad."""
    if tally.skipped + tally.broken_shards > budget:
        raise BudgetError(f"{tally.dropped()}: more than skip_budget={budget:,}; mend the shards or raise the budget")


def no_row(tally: Tally, rank: int, world_size: int, *, agreed: bool = False) -> EmptyStreamError:
    """Return the error for a pass without a row for this rank; ``agreed``: nor for another, which raises it as well."""
    whose = f" to rank {rank} of {world_size}" if world_size > 1 and not agreed else ""
    said = f"the pass gave no row{whose}: {tally.records:,} records were read, {tally.without_rows()}"
    error = EmptyStreamError(said)
    error.told_to_all = agreed
    return error
