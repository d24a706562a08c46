"""Whole rows of a table, for those who take all of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import pyarrow as pa

from streamfeed.formats.arrow_objects import objects_of
from streamfeed.formats.protocol import Value

__all__ = ["BatchRows", "plain", "rows_of"]


class BatchRows(Sequence[Value]):
    """The rows of ``batch``, left in Arrow's memory; as values they are their Python text, for messages alone."""

    def __init__(self, batch: Any) -> None:  # noqa: ANN401
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return str(rows_of(self.batch.slice(range(len(self))[index], 1))[0])


def rows_of(batch: Any) -> list[dict[str, object]]:  # noqa: ANN401
    """Return rows as dictionaries, with nulls; a value that cannot be had is :class:`Bad`."""
    names = batch.schema.names
    columns = [objects_of(plain(column), nulls=True) for column in batch.columns]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain(array: Any) -> Any:  # noqa: ANN401
    """Return the values without dictionaries and extensions on top; of times, what a datetime can say."""
    while isinstance(array.type, pa.BaseExtensionType) or pa.types.is_dictionary(array.type):
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array.storage
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return array
