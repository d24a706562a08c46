"""A stream read on one topology, and again on others that go on from each other's states."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streamfeed.dataset.state import merge_states
from streamfeed.errors import StreamfeedError
from streamfeed.loader.loader import StreamLoader
from streamfeed.plan.order import keyed_bits, order_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streamfeed.config import StreamConfig
    from streamfeed.loader.provenance import Provenance, RecordOrigin, TracedBatch

__all__ = ["Fault", "Leg", "Relay"]

_TOPOLOGIES = ((2, 0), (1, 2), (3, 0), (2, 2), (5, 0))
"""Ranks, and workers of each; ranks are loaders in this process, workers are processes."""


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

    def words(self) -> str:
        """Say it in words."""
        whose = "the first reading's state" if self.again else "the state before"
        begun = f"from row {self.first:,} on, with {whose}" if self.first else "from the beginning"
        return f"{self.ranks} rank(s) with {self.workers} worker(s) each, {begun}"


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


class _Row(NamedTuple):
    """A row as it was handed out: its columns without padding, and where it comes from."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    provenance: Provenance
    at: int

    def equals(self, other: _Row) -> bool:
        return np.array_equal(self.ids, other.ids) and np.array_equal(self.labels, other.labels)

    def differs(self, other: _Row) -> int:
        """Return the first column that differs."""
        length = min(len(self.ids), len(other.ids))
        same = self.ids[:length] == other.ids[:length]
        if self.labels.ndim and len(self.labels) == len(self.ids) and len(other.labels) == len(other.ids):
            same &= self.labels[:length] == other.labels[:length]
        return length if same.all() else int(same.argmin())

    def record(self, column: int) -> RecordOrigin | None:
        """Return the (first) record of the token at ``column``, or of the last one."""
        pieces = self.provenance[self.at]
        found = next((piece for piece in pieces if column < piece.end), pieces[-1] if pieces else None)
        return None if found is None else found.records[0]


class Relay:
    """The first reading of a stream, and what is held against it."""

    def __init__(self, config: StreamConfig, batch_size: int, multiple: int | None) -> None:
        self._config = config
        self._size = batch_size
        self._multiple = multiple
        self._loader = StreamLoader(config, batch_size, rank=0, world_size=1, provenance=True, **self._padding())
        self._rows: dict[int, _Row] = {}
        self._states: list[dict[str, Any]] = []
        self._chains: dict[tuple[str, int], str] = {}
        self._state: dict[str, Any] | None = None
        self.hashes = 0
        """how many of the hashes of lanes that states carry were compared"""

    def _padding(self) -> dict[str, Any]:
        return {} if self._multiple is None else {"pad_to_multiple_of": self._multiple}

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
                self._rows |= _rows(cast("TracedBatch", batch))
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
            yield Leg(first, stop, ranks, workers, again=index % 2 == 0 and index > 0)

    def run(self, leg: Leg) -> Fault | None:
        """Read the rows of ``leg``, compare them, and keep its state for the next one; return the first difference."""
        state = self._states[leg.first // self._size] if leg.again or self._state is None else self._state
        if state["ended"]:
            return None  # batches of more rows came to the end with the leg before
        try:
            self._state, found = self._read(leg, json.loads(json.dumps(state)))
        except StreamfeedError as error:
            return self._after(error, leg)
        how = f"read on {leg.words()}"
        fault = self._compare(found, how) or self._missing(found, range(state["rows"], leg.stop), how)
        return fault or self._compare_chains(self._state)

    def _read(self, leg: Leg, state: dict[str, Any]) -> tuple[dict[str, Any], dict[int, _Row]]:
        """Return the state behind a leg that begins with ``state``, and its rows."""
        size = max(1, self._size // leg.ranks)
        count = max(0, -(-(leg.stop - state["rows"]) // (size * leg.ranks)))
        found: dict[int, _Row] = {}
        states = []
        for rank in range(leg.ranks):
            with StreamLoader(
                self._config,
                size,
                num_workers=leg.workers,
                rank=rank,
                world_size=leg.ranks,
                plan=self._loader.plan,
                provenance=True,
                **self._padding(),
            ) as loader:
                loader.load_state_dict(state)
                for batch in islice(loader, count):
                    found |= _rows(cast("TracedBatch", batch))
                states.append(loader.state_dict())
        return _joined(states), found

    def _compare(self, found: dict[int, _Row], how: str) -> Fault | None:
        """Return the first of ``found`` that the first reading had otherwise; None where there is none."""
        for number in sorted(found):
            known = self._rows.get(number)
            if known is not None and not known.equals(found[number]):
                column = known.differs(found[number])
                record = _culprit(self._rows, found) or known.record(column) or found[number].record(column)
                if record is None:
                    return Fault(how, number, column)
                return Fault(how, number, column, record.shard, record.record, record.epoch)
        return None

    def _missing(self, found: dict[int, _Row], rows: range, how: str) -> Fault | None:
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


def _rows(batch: TracedBatch) -> dict[int, _Row]:
    """Return the rows of ``batch`` by number, without what pads them."""
    ids, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
    shown = batch["attention_mask"].sum(1).tolist() if "attention_mask" in batch else [ids.shape[1]] * len(ids)
    provenance = batch.provenance
    return {
        number: _Row(
            ids[index, : shown[index]].copy(),
            np.atleast_1d(labels[index] if labels.ndim == 1 else labels[index, : shown[index]]).copy(),
            provenance,
            index,
        )
        for index, number in enumerate(provenance.numbers)
    }


def _culprit(known: dict[int, _Row], found: dict[int, _Row]) -> RecordOrigin | None:
    """Return the first record whose samples have other tokens than before.

    Where one has changed its length, rows differ that have nothing of it: others have moved.
    """
    before, now = _samples(known), _samples(found)
    for key, (record, pieces) in before.items():
        if key not in now:
            continue
        sides = [_laid(parts, max(end for end, _ in (*pieces, *now[key][1]))) for parts in (pieces, now[key][1])]
        if ((sides[0] != sides[1]) & (sides[0] >= 0) & (sides[1] >= 0)).any():
            return record
    return None


_Pieces = list[tuple[int, "NDArray[np.int64]"]]


def _samples(rows: dict[int, _Row]) -> dict[object, tuple[RecordOrigin, _Pieces]]:
    """Return the pieces of every sample: the token behind the last of each, and its ids; in the order of the rows."""
    samples: dict[object, tuple[RecordOrigin, _Pieces]] = {}
    for _, row in sorted(rows.items()):
        for piece in row.provenance[row.at]:
            record = piece.records[0]
            key = (record.source, record.epoch, record.unit, record.record, piece.sample)
            ids = row.ids[piece.begin : piece.end]
            samples.setdefault(key, (record, []))[1].append((piece.token + len(ids), ids))
    return samples


def _laid(pieces: _Pieces, length: int) -> NDArray[np.int64]:
    """Lay pieces of a sample where they belong; -1 where there is none."""
    ids = np.full(length, -1, dtype=np.int64)
    for end, some in pieces:
        ids[end - len(some) : end] = some
    return ids


def _joined(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the states of all ranks as one; at the end of a finite pass ranks end each by itself."""
    most = max(state["rows"] for state in states)
    return merge_states([{**state, "rows": most, "ended": all(one["ended"] for one in states)} for state in states])
