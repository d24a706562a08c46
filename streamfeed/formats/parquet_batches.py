"""The batches of a Parquet row group, so read that little of it stays in memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from streamfeed.errors import CorruptShardError
from streamfeed.formats.parquet_footer import BROKEN, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile

__all__ = ["batches_of"]

_SMALL_GROUP = 8 << 20
"""Bytes of its columns, decompressed; a reader that stays open may well hold as much."""


def batches_of(batches: Any, nbytes: int, file: ShardFile, group: int) -> Iterator[Any]:  # noqa: ANN401
    """Yield ``batches``, which read row group ``group``, of ``nbytes``.

    A small group is read at once: while its reader is open it holds a page and the dictionary, and writers that count
    rows make dictionaries as large as the group. A lane that turns to its next window would hold that for long.
    Raises :class:`~streamfeed.errors.CorruptShardError` behind the rows before the damage.
    """
    if nbytes <= _SMALL_GROUP:
        yield from _at_once(batches, file, group)
    while (batch := _next(batches, file, group)) is not None:
        yield batch


def _at_once(batches: Any, file: ShardFile, group: int) -> Iterator[Any]:  # noqa: ANN401
    """Read ``batches`` to their end, unless a dictionary made much of little, and yield what was read."""
    held: deque[Any] = deque()
    room, damage = 2 * _SMALL_GROUP, None
    try:
        while room > 0 and (batch := _next(batches, file, group)) is not None:
            held.append(batch)
            room -= batch.nbytes
    except CorruptShardError as error:
        damage = error
    while held:
        yield held.popleft()  # what was yielded is not held here
    if damage is not None:
        raise damage


def _next(batches: Any, file: ShardFile, group: int) -> Any:  # noqa: ANN401
    try:
        return next(batches, None)
    except BROKEN as error:
        cause = f"the column is damaged or cut off ({first_line(error)})"
        raise CorruptShardError(file.shard, f"row group {group}", cause, "copy the shard again") from error
