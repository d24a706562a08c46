"""Rows of a stream as they were handed out, to be held against those of another reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.loader.provenance import Piece, RecordOrigin, TracedBatch

__all__ = ["Row", "culprit", "rows_of"]


class Row(NamedTuple):
    """A row as it was handed out: its columns without padding, and where it comes from."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    provenance: Sequence[tuple[Piece, ...]]
    at: int

    def alone(self) -> Row:
        """Return the row with nothing of its batch, to be sent to another process."""
        return self._replace(provenance=[self.provenance[self.at]], at=0)

    def equals(self, other: Row) -> bool:
        """Say whether ids and labels are the same."""
        return np.array_equal(self.ids, other.ids) and np.array_equal(self.labels, other.labels)

    def differs(self, other: Row) -> int:
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


def rows_of(batch: TracedBatch) -> dict[int, Row]:
    """Return the rows of ``batch`` by number, without what pads them."""
    ids, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
    shown = batch["attention_mask"].sum(1).tolist() if "attention_mask" in batch else [ids.shape[1]] * len(ids)
    provenance = batch.provenance
    return {
        number: Row(
            ids[index, : shown[index]].copy(),
            np.atleast_1d(labels[index] if labels.ndim == 1 else labels[index, : shown[index]]).copy(),
            provenance,
            index,
        )
        for index, number in enumerate(provenance.numbers)
    }


def culprit(known: dict[int, Row], found: dict[int, Row]) -> RecordOrigin | None:
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


def _samples(rows: dict[int, Row]) -> dict[object, tuple[RecordOrigin, _Pieces]]:
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
