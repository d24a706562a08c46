"""What an Arrow column of any type takes in a batch: its nodes, buffers and children."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streamfeed.errors import FieldError
from streamfeed.formats.arrow_column import Place, Size, size_of, storage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.formats.flatbuffer import Table
    from streamfeed.formats.record_columns import RecordColumn

__all__ = ["Layout", "column_layout", "dictionaries_of", "is_view"]


class Layout(NamedTuple):
    """A column of the type ``kind`` (no extension) at ``place``; ``end`` is the place behind it and its children.

    Of a dictionary's indices, ``dictionary`` is its id and ``children`` are its values, as they lie in its own batch.
    """

    kind: Any
    place: Place
    end: Place
    children: tuple[Layout, ...]
    dictionary: int = -1


def column_layout(
    schema: Any,  # noqa: ANN401
    table: Table,
    column: RecordColumn,
    shard: str,
) -> tuple[Layout, list[Place]]:
    """Return the layout of ``column``, and the places of the structs around it; ``table`` is the schema's metadata."""
    fields, tables, before = list(schema), table.tables(1), Size()
    parents: list[Place] = []
    for depth, number in enumerate(column.path):
        for earlier in fields[:number]:
            before = before.plus(size_of(earlier.type, shard))
        if depth == len(column.path) - 1:
            break
        parents.append(Place(*before))
        before = before.plus(Size(1, 1, 0))
        kind = storage_of(fields[number].type)
        tables = tables[number].tables(5)
        fields = [kind.field(i) for i in range(kind.num_fields)]
    return _layout(column.kind, tables[column.path[-1]], before, shard, ".".join(column.names)), parents


def dictionaries_of(layout: Layout) -> Iterator[Layout]:
    """Yield the layouts of dictionaries' indices in ``layout``."""
    if layout.dictionary >= 0:
        yield layout
    for child in layout.children:
        yield from dictionaries_of(child)


def is_view(kind: Any) -> bool:  # noqa: ANN401
    """Return whether a column of this type has a number of buffers that each batch says."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _layout(kind: Any, table: Table, before: Size, shard: str, name: str) -> Layout:  # noqa: ANN401
    kind = storage_of(kind)
    types = pa.types
    if types.is_dictionary(kind):
        encoding = table.table(4)
        if encoding is None:
            raise ValueError(f"the dictionary of column {name!r} has no id")
        values = _layout(kind.value_type, table, Size(), shard, name)
        end = before.plus(Size(1, 2, 0))
        return Layout(kind, Place(*before), Place(*end), (values,), encoding.number(0, "<q"))
    if types.is_union(kind) or types.is_run_end_encoded(kind):
        raise FieldError(shard, "", f"column {name!r} holds {kind} values, which are not read", "write another type")
    end = before.plus(Size(1, 0 if types.is_null(kind) else int(kind.num_buffers), int(is_view(kind))))
    children: list[Layout] = []
    if types.is_nested(kind):
        inner = table.tables(5)
        for number in range(kind.num_fields):
            children.append(_layout(kind.field(number).type, inner[number], end, shard, name))
            end = Size(*children[-1].end)
    return Layout(kind, Place(*before), Place(*end), tuple(children))
