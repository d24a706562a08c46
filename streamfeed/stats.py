"""Counters that say what happened to the data.

Two kinds, never mixed: :class:`ReadStats` counts the work of one process (it differs between topologies and is not part
of the state), :class:`Tally` counts what became of the records (it is part of every lane's state, so that a resume does
not count twice).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter

from streamfeed.stages import Stages

__all__ = ["TALLY_NAMES", "ReadStats", "Tally"]


@dataclass(slots=True)
class ReadStats:
    """Bytes and calls that one process asked of storage; requests repeated, and credentials found expired.

    ``stages``: where the time of the thread that reads goes.
    """

    bytes: int = 0
    reads: int = 0
    opens: int = 0
    retries: int = 0
    expired: int = 0
    stages: Stages = field(default_factory=Stages, compare=False, repr=False)


@dataclass(slots=True)
class Tally:
    """What became of the records of a lane since the stream began (or since the pass began, in a finite one)."""

    records: int = 0
    """records read, of any kind"""
    null: int = 0
    """records dropped because their text is null"""
    empty: int = 0
    """records dropped because their text is empty, or holds no tokens"""
    skipped: int = 0
    """bad records passed over by ``on_error="skip"``"""
    broken_shards: int = 0
    """shards given up part-way by ``on_error="skip"`` (the rest of each is unread)"""
    oversized: int = 0
    """documents larger than ``window_bytes``, each a window alone"""
    mapped_out: int = 0
    """records for which the user's function returned nothing, or one with a null of what the objective takes"""
    truncated: int = 0
    """samples cut to the length of a row, what is behind it lost (classification alone does that)"""
    cut: int = 0
    """samples longer than a row, cut into several rows (without loss)"""
    long: int = 0
    """documents encoded in several parts because of their size"""
    controls: int = 0
    """control strings, such as ``<|endoftext|>``, found in texts and kept as text"""
    held_out: int = 0
    """documents read and left to the other part of a hold-out (null, empty and bad records are of no part: each part
    that reads them counts them)"""

    def add(self, other: Tally) -> None:
        """Add the counts of ``other`` to these."""
        for name in TALLY_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def copy(self) -> Tally:
        """Return an independent copy."""
        return Tally(*_counts_of(self))

    def counts(self) -> dict[str, int]:
        """Return the counts that are not zero, by name."""
        return {name: count for name in TALLY_NAMES if (count := getattr(self, name))}

    def dropped(self) -> str:
        """Say in words what did not become tokens; empty when everything did."""
        return _listed(self, _DROPPED)

    def remarks(self) -> str:
        """Say in words what happened to records without loss; empty when nothing did."""
        return _listed(self, _REMARKS)

    def without_rows(self) -> str:
        """Say in words what became of all the records, where they gave not one row."""
        return _listed(self, _DROPPED | _LEFT) or "none dropped"


_DROPPED = {
    "null": "null",
    "empty": "empty",
    "skipped": "skipped",
    "broken_shards": "broken shards",
    "mapped_out": "dropped by map",
}
_LEFT = {"held_out": "left to the other part of the hold-out"}
_REMARKS = {
    "cut": "samples cut into several rows",
    "long": "documents encoded in parts",
    "controls": "control strings kept as text",
    **_LEFT,
}


def _listed(tally: Tally, names: dict[str, str]) -> str:
    return ", ".join(f"{count:,} {words}" for name, words in names.items() if (count := getattr(tally, name)))


TALLY_NAMES = tuple(one.name for one in fields(Tally))

_counts_of = attrgetter(*TALLY_NAMES)
