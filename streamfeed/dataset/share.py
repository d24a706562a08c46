"""Which rows of the stream are a rank's, and which lanes it hosts for them.

Row ``g`` of the stream is row ``g // V`` of lane ``g % V``. Rank ``r`` of ``R`` takes the rows ``t*R + r``. Its lanes
come round in a fixed order: its ``t``-th row is of the lane at slot ``t % slots``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from streamfeed.errors import ConfigError

__all__ = ["Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """Rank ``rank`` of ``world`` in a stream of ``lanes`` lanes."""

    lanes: int
    rank: int
    world: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ConfigError(f"rank must be in [0, world_size), got rank {self.rank} of {self.world}")

    @property
    def slots(self) -> int:
        """The number of lanes that the rank hosts."""
        return self.lanes // gcd(self.lanes, self.world)

    @property
    def step(self) -> int:
        """Of a hosted lane's rows, every ``step``-th is the rank's own; 1 when the world divides the lanes."""
        return self.world // gcd(self.lanes, self.world)

    def lane_at(self, slot: int) -> int:
        """Return the lane at ``slot``."""
        return (slot * self.world + self.rank) % self.lanes

    def lane_row(self, t: int) -> int:
        """Return which row of its lane the rank's ``t``-th row is."""
        return (t * self.world + self.rank) // self.lanes

    def first(self, rows: int) -> int:
        """Return the rank's first ``t`` when ``rows`` global rows have been handed out."""
        return max(0, -(-(rows - self.rank) // self.world))

    def worker_slots(self, worker: int, workers: int) -> range:
        """Return the slots that ``worker`` of ``workers`` hosts; ``workers`` is at most :attr:`slots`."""
        return range(worker, self.slots, workers)

    def advice(self) -> str:
        """Say what to change where lanes are computed more than once; empty where none is."""
        if self.step == 1:
            return ""
        better = max(divisor for divisor in range(1, self.world + 1) if self.lanes % divisor == 0)
        return (
            f"{self.lanes} lanes do not divide by {self.world} ranks: {self.step} ranks compute the same lane and hand "
            f"on their own rows of it, which is right but costs {self.step} times the work; use {better} ranks, or a "
            f"stream with lanes={self.lanes * self.step}"
        )
