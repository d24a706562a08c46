"""Readers drained in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfeed.formats.protocol import Chunk, Value


def values_in(chunks: Iterable[Chunk]) -> list[Value]:
    """Return the values of all chunks in order."""
    return [value for chunk in chunks for value in chunk.values]


def until_corrupt(chunks: Iterable[Chunk]) -> tuple[list[Value], CorruptShardError]:
    """Return the values before the :class:`CorruptShardError` that must come, and the error."""
    values: list[Value] = []
    try:
        for chunk in chunks:
            values += chunk.values
    except CorruptShardError as error:
        return values, error
    raise AssertionError("the damage went unseen")
