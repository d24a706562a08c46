"""Keyed orders: the same on every machine, in every process, after every upgrade.

An order is a stable argsort of 64 keyed random bits an item. The bits come from Philox4x64-10 (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011), a counter-based generator whose raw stream numpy guarantees; the key is the
XXH3-128 hash of what the order is for. ``tests/plan/test_order.py`` holds golden values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KeyedOrders", "keyed_bits", "order_key", "permutation"]

BLOCK = 4096
"""Numbers that :class:`KeyedOrders` draws at once: a generator costs as much as ten thousand numbers."""


def order_key(*parts: str | int) -> int:
    """Return the 128-bit key of ``parts`` (names without control characters, and numbers).

    Unlike parts give unlike keys: "1" is not 1, and ("a", "b") is not ("ab",).
    """
    text = "\x1f".join(f"s{part}" if isinstance(part, str) else f"i{part}" for part in parts)
    return xxhash.xxh3_128_intdigest(text.encode())


def keyed_bits(key: int, count: int) -> NDArray[np.uint64]:
    """Return ``count`` random 64-bit numbers, a pure function of ``key``; a longer draw begins with a shorter one."""
    return np.asarray(np.random.Philox(key=key).random_raw(count), dtype=np.uint64)


def permutation(key: int, count: int) -> NDArray[np.int64]:
    """Return a permutation of ``range(count)``, int64, a pure function of ``key``."""
    return np.argsort(keyed_bits(key, count), kind="stable").astype(np.int64, copy=False)


class KeyedOrders:
    """Orders of consecutive items of a sequence, a pure function of ``parts`` and of the items' numbers."""

    def __init__(self, *parts: str | int) -> None:
        self._parts = parts
        self._blocks: dict[int, NDArray[np.uint64]] = {}  # the last two: items may lie in both

    def order(self, first: int, count: int) -> NDArray[np.int64]:
        """Return a permutation of ``range(count)``, int64, for items ``first`` to ``first + count - 1``."""
        block, begin = divmod(first, BLOCK)
        if begin + count <= BLOCK:
            return self._bits(block)[begin : begin + count].argsort(kind="stable")
        numbers = range(block, (first + count - 1) // BLOCK + 1)
        bits = np.concatenate([self._bits(number) for number in numbers])
        return bits[begin : begin + count].argsort(kind="stable")

    def _bits(self, block: int) -> NDArray[np.uint64]:
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = keyed_bits(order_key(*self._parts, block), BLOCK)
            self._blocks.pop(block - 2, None)
        return found
