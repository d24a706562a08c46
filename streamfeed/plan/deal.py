"""Which lane reads which units in an epoch, and in what order."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.plan.order import order_key, permutation

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Dealer", "deal"]

KEPT_EPOCHS = 4
"""Lanes of one process are at most a few epochs apart; older deals are made again when asked for."""


def deal(nbytes: NDArray[np.int64], order: NDArray[np.int64], ties: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Deal units to ``len(ties)`` lanes: in ``order``, each to the lane with the fewest bytes so far.

    ``ties[rank]`` is the lane that wins ties before those after it. Returns each lane's units in the order in which it
    reads them.
    """
    if len(ties) == 1:
        return [order]
    hands: list[list[int]] = [[] for _ in ties]
    heap = [(0, rank) for rank in range(len(ties))]
    lane_of = ties.tolist()
    for unit, size in zip(order.tolist(), nbytes[order].tolist(), strict=True):
        total, rank = heap[0]
        hands[lane_of[rank]].append(unit)
        heapq.heapreplace(heap, (total + size, rank))
    return [np.asarray(hand, dtype=np.int64) for hand in hands]


class Dealer:
    """Deals one source's units, epoch by epoch; the last few epochs are remembered.

    ``shuffled=False`` keeps the listed order.
    """

    def __init__(self, nbytes: NDArray[np.int64], lanes: int, seed: int, source: int, *, shuffled: bool) -> None:
        self._nbytes = nbytes
        self._lanes = lanes
        self._seed = seed
        self._source = source
        self._shuffled = shuffled
        self._hands: OrderedDict[int, list[NDArray[np.int64]]] = OrderedDict()

    def hand(self, epoch: int, lane: int) -> NDArray[np.int64]:
        """Return the units that ``lane`` reads in ``epoch``, in its order: int64 ``[units]``."""
        if epoch not in self._hands:
            self._hands[epoch] = self._deal(epoch)
            if len(self._hands) > KEPT_EPOCHS:
                self._hands.popitem(last=False)
        return self._hands[epoch][lane]

    def _deal(self, epoch: int) -> list[NDArray[np.int64]]:
        if not self._shuffled:
            return deal(self._nbytes, np.arange(len(self._nbytes)), np.arange(self._lanes))
        order = permutation(order_key("units", self._seed, self._source, epoch), len(self._nbytes))
        ties = permutation(order_key("ties", self._seed, self._source, epoch), self._lanes)
        return deal(self._nbytes, order, ties)

    def whole(self, units: NDArray[np.int64], epoch: int, lane: int) -> NDArray[np.int64]:
        """Return ``units`` in the order of a lane that reads the source whole."""
        if not self._shuffled:
            return units
        return units[permutation(order_key("whole", self._seed, self._source, epoch, lane), len(units))]
