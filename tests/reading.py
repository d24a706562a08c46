"""Readers drained in tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamfeed.errors import CorruptShardError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamfeed.formats.protocol import Chunk, Value
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile


@dataclass
class OptionsAlone:
    """An edge that has nothing but options, for readers that open no shard through it."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, file: ShardFile) -> RawFile:
        raise AssertionError(file.url)

    def confirm(self, file: ShardFile) -> None:
        raise AssertionError(file.url)


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
