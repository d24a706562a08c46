"""The two sides of a hold-out: which of them a hash is on, and which shards that chooses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import xxhash

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.config import HoldOut

__all__ = ["Side", "shards_read"]

_DIGITS = 10**6
"""A share that is named in a message has at most so many parts."""


class Side:
    """The part that a stream reads: of what has been hashed, what :meth:`has` says."""

    def __init__(self, rule: HoldOut) -> None:
        self._limit = rule.limit
        self._seed = rule.seed
        self._held_out = rule.part == "held_out"

    def has(self, data: bytes | memoryview) -> bool:
        """Say whether what ``data`` (a text, a key, a name, in UTF-8) stands for is of this part."""
        return (xxhash.xxh3_64_intdigest(data, self._seed) < self._limit) is self._held_out

    def of(self, texts: Sequence[memoryview]) -> list[memoryview]:
        """Return those of ``texts`` that are of this part, in their order."""
        digest, seed, limit = xxhash.xxh3_64_intdigest, self._seed, self._limit
        if self._held_out:
            return [text for text in texts if digest(text, seed) < limit]
        return [text for text in texts if digest(text, seed) >= limit]


def shards_read(names: Sequence[str], rule: HoldOut, shown: str) -> list[int]:
    """Return the indices of the shards, by their relative ``names``, that are of the part that ``rule`` reads.

    Raises :class:`ConfigError` where one of the two parts would have none; ``shown`` is the source in words.
    """
    if len(names) == 1:
        raise ConfigError(
            f"{shown} is a single shard, so that nothing of it can be held out by shard; hold out by 'text' or by a "
            "field ('key:NAME')"
        )
    digests = [xxhash.xxh3_64_intdigest(name.encode(errors="surrogateescape"), rule.seed) for name in names]
    held_out = [digest < rule.limit for digest in digests]
    if not any(held_out) or all(held_out):
        raise ConfigError(
            f"{shown}: a share of {rule.share:g} holds out {'none' if not any(held_out) else 'all'} of the "
            f"{len(names):,} shards: {_nearest(digests, too_few=not any(held_out))}; or choose others by another seed"
        )
    return [index for index, held in enumerate(held_out) if held is (rule.part == "held_out")]


def _nearest(digests: Sequence[int], *, too_few: bool) -> str:
    """Say the share nearest to one that holds out too few, or too many, of the shards with these digests."""
    if too_few:
        least = math.floor((min(digests) + 1) / 2**64 * _DIGITS + 1) / _DIGITS
        return f"{least:g} is the least that holds out one"
    most = math.floor(max(digests) / 2**64 * _DIGITS) / _DIGITS
    return f"{most:g} is the most that leaves one to training"
