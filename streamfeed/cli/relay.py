"""A stream read on one topology, and again on others that go on from each other's states."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streamfeed.cli.killed import read_killed
from streamfeed.cli.rows import culprit, rows_of
from streamfeed.cli.stretch import Stretch
from streamfeed.dataset.state import merge_states
from streamfeed.errors import StreamfeedError
from streamfeed.plan.order import keyed_bits, order_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.cli.rows import Row
    from streamfeed.config import StreamConfig
    from streamfeed.loader.provenance import TracedBatch

__all__ = ["Fault", "Leg", "Relay"]

_TOPOLOGIES = ((1, 2), (2, 0), (3, 0), (2, 2), (5, 0))
"""Ranks, and workers of each. Ranks with workers are processes, which are killed; without, loaders in this process."""

_AGAIN = 2
"""The leg that begins with the first reading's state."""


@dataclass(frozen=True)
class Leg:
    """Rows from about ``first`` to about ``stop`` of the stream, on ``ranks`` ranks with ``workers`` workers each.

    They begin with the state of the leg before, or with the first reading's (``again``).
    """

    first: int
    stop: int
    ranks: int
    workers: int
    again: bool

    def words(self, killed: int = 0) -> str:
        """Say it in words, and how many processes were ``killed``."""
        whose = "the first reading's state" if self.again else "the state before"
        begun = f"from row {self.first:,} on, with {whose}" if self.first else "from the beginning"
        end = f", {killed} process(es) killed by SIGKILL" if killed else ""
        return f"{self.ranks} rank(s) with {self.workers} worker(s) each, {begun}{end}"

    @property
    def processes(self) -> int:
        """How many processes it takes, which are killed at its end."""
        return self.ranks if self.workers else 0


@dataclass(frozen=True)
class Fault:
    """What is not as promised: ``cause`` in words, and the first ``row`` that differs, if one was found.

    ``shard`` and ``record`` are of the first token that differs, ``column`` of the row; ``epoch`` is when it was read.
    """

    cause: str
    row: int | None = None
    column: int | None = None
    shard: str = ""
    record: int | None = None
    epoch: int | None = None

    def words(self) -> str:
        """Say it in words."""
        if self.row is None:
            return self.cause
        place = f"row {self.row:,} of the stream differs from column {self.column} on"
        what = f": {self.shard}, record {self.record} (epoch {self.epoch})" if self.shard else ""
        return f"{place}{what}; {self.cause}"


class Relay:
    """The first reading of a stream, and what is held against it."""

    def __init__(self, config: StreamConfig, batch_size: int, multiple: int | None) -> None:
        self._size = batch_size
        self._whole = Stretch(config, batch_size, multiple)
        self._loader = self._whole.loader()
        self._whole = replace(self._whole, plan=self._loader.plan)
        self._rows: dict[int, Row] = {}
        self._states: list[dict[str, Any]] = []
        self._chains: dict[tuple[str, int], str] = {}
        self._state: dict[str, Any] | None = None
        self.hashes = 0
        """how many of the hashes of lanes that states carry were compared"""
        self.killed = 0
        """how many processes were killed"""

    @property
    def rows(self) -> int:
        """Rows of the first reading."""
        return len(self._rows)

    @property
    def tokens(self) -> int:
        """Tokens of the first reading."""
        return sum(len(row.ids) for row in self._rows.values())

    @property
    def lanes(self) -> int:
        """Lanes of the stream."""
        return self._loader.plan.lanes

    def read(self, batches: int) -> None:
        """Read the stream for the first time, fewer batches where it ends before."""
        with self._loader as loader:
            self._note(loader.state_dict())
            for batch in islice(loader, batches):
                self._rows |= rows_of(cast("TracedBatch", batch))
                self._note(loader.state_dict())

    def _note(self, state: dict[str, Any]) -> None:
        self._states.append(state)
        for lane, one in state["lanes"].items():
            self._chains[lane, one["rows"]] = one["chain"]

    def legs(self, seed: int) -> Iterator[Leg]:
        """Yield the legs: they cover the rows once, cut at random places."""
        batches = len(self._states) - 1
        count = min(len(_TOPOLOGIES), batches)
        order = np.argsort(keyed_bits(order_key("verify", seed), max(0, batches - 1)), kind="stable")
        cuts = [0, *sorted(1 + order[: count - 1]), batches]
        for index, (ranks, workers) in enumerate(_TOPOLOGIES[:count]):
            first, stop = int(cuts[index]) * self._size, int(cuts[index + 1]) * self._size
            yield Leg(first, stop, ranks, workers, again=index == _AGAIN)

    def run(self, leg: Leg) -> Fault | None:
        """Read the rows of ``leg``, compare them, and keep its state for the next one; return the first difference."""
        state = self._states[leg.first // self._size] if leg.again or self._state is None else self._state
        if state["ended"]:
            return None  # batches of more rows came to the end with the leg before
        try:
            self._state, found = self._read(leg, json.loads(json.dumps(state)))
        except StreamfeedError as error:
            return self._after(error, leg)
        how = f"read on {leg.words(leg.processes)}"
        fault = self._compare(found, how) or self._missing(found, range(state["rows"], leg.stop), how)
        return fault or self._compare_chains(self._state)

    def _read(self, leg: Leg, state: dict[str, Any]) -> tuple[dict[str, Any], dict[int, Row]]:
        """Return the state behind a leg that begins with ``state``, and its rows."""
        size = max(1, self._size // leg.ranks)
        count = max(0, -(-(leg.stop - state["rows"]) // (size * leg.ranks)))
        whole = replace(self._whole, size=size, batches=count, ranks=leg.ranks, workers=leg.workers, state=state)
        stretches = [replace(whole, rank=rank) for rank in range(leg.ranks)]
        told = read_killed(stretches) if leg.processes else [stretch.read() for stretch in stretches]
        self.killed += leg.processes
        return _joined([state for _, state in told]), {number: row for rows, _ in told for number, row in rows.items()}

    def _compare(self, found: dict[int, Row], how: str) -> Fault | None:
        """Return the first of ``found`` that the first reading had otherwise; None where there is none."""
        for number in sorted(found):
            known = self._rows.get(number)
            if known is not None and not known.equals(found[number]):
                column = known.differs(found[number])
                record = culprit(self._rows, found) or known.record(column) or found[number].record(column)
                if record is None:
                    return Fault(how, number, column)
                return Fault(how, number, column, record.shard, record.record, record.epoch)
        return None

    def _missing(self, found: dict[int, Row], rows: range, how: str) -> Fault | None:
        """Return the first of ``rows`` that was not handed out again; what pads the last batch need not be."""
        for number in rows:
            known = self._rows.get(number)
            if known is not None and number not in found and (record := known.record(0)) is not None:
                return Fault(f"the row is missing, {how}", number, 0, record.shard, record.record, record.epoch)
        return None

    def _compare_chains(self, state: dict[str, Any]) -> Fault | None:
        for lane, one in state["lanes"].items():
            known = self._chains.get((lane, one["rows"]))
            if known is None:
                continue
            self.hashes += 1
            if known != one["chain"]:
                return Fault(f"the hash of the first {one['rows']:,} rows of lane {lane} is another in a later state")
        return None

    def _after(self, error: StreamfeedError, leg: Leg) -> Fault:
        """Return the fault that ``error`` is; reading from the beginning once more may show which record it is."""
        said = " ".join(str(error).split())
        cause = f"on {leg.words()}: {said}"
        try:
            state = json.loads(json.dumps(self._states[0]))
            _, found = self._read(Leg(0, self.rows, 1, 0, again=False), state)
        except StreamfeedError:
            return Fault(cause)
        return self._compare(found, cause) or Fault(cause)


def _joined(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the states of all ranks as one; at the end of a finite pass ranks end each by itself."""
    most = max(state["rows"] for state in states)
    return merge_states([{**state, "rows": most, "ended": all(one["ended"] for one in states)} for state in states])
