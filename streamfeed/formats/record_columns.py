"""Columns of a table as the fields of a shape: which they are, and their rows as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streamfeed.errors import FieldError
from streamfeed.formats.arrow import innermost, texts_of
from streamfeed.formats.arrow_column import is_text, step_into, storage_of
from streamfeed.formats.arrow_objects import objects_of
from streamfeed.formats.protocol import Bad, Chunk, Value
from streamfeed.formats.whole import BatchRows, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfeed.formats.shape import Field, Shape

__all__ = ["RecordColumn", "records_of", "wanted"]

_MOST_ROWS = 2048  # a dictionary can hide how large its rows are
_PART_BYTES = 256 << 10  # of a column that are made Python's objects at a time, which take several times that
_CHUNK_BYTES = 1 << 20


class RecordColumn(NamedTuple):
    """The column of ``field``: the numbers and the names that lead to it from the schema on, and its type."""

    field: Field
    path: tuple[int, ...]
    names: tuple[str, ...]
    kind: Any


def wanted(schema: Any, shape: Shape, shard: str) -> list[RecordColumn]:  # noqa: ANN401
    """Return the columns of ``shape``; a name that has the dots itself wins over a struct's field.

    Raises :class:`FieldError` where one is missing, or has a type whose values are nothing that its kind may be.
    """
    return [_found(schema, field, shard) for field in shape.fields]


def _found(schema: Any, field: Field, shard: str) -> RecordColumn:  # noqa: ANN401
    name = rest = field.name or field.key
    fields, present = list(schema), [one.name for one in schema]
    path: list[int] = []
    names: list[str] = []
    while True:
        number, rest = step_into(fields, rest, name, shard, present)
        path.append(number)
        names.append(fields[number].name)
        kind = storage_of(fields[number].type)
        if not rest:
            break
        fields = [kind.field(i) for i in range(kind.num_fields)]
    fits, what = _FITS[field.kind]
    if not fits(storage_of(kind.value_type) if pa.types.is_dictionary(kind) else kind):
        cause = f"column {name!r} holds {kind} values, not {what}"
        raise FieldError(shard, "", cause, f"name a column of {what}, or make them in a map function")
    return RecordColumn(field, tuple(path), tuple(names), kind)


def _may_be_label(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind))


def _may_be_key(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_integer(kind) or is_text(kind))


def _may_be_messages(kind: Any) -> bool:  # noqa: ANN401
    return is_text(kind) or (_is_list(kind) and pa.types.is_struct(storage_of(kind.value_type)))


def _is_list(kind: Any) -> bool:  # noqa: ANN401
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _may_be_anything(kind: Any) -> bool:  # noqa: ANN401, ARG001
    return True


_FITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (is_text, "text"),
    "label": (_may_be_label, "labels"),
    "messages": (_may_be_messages, "lists of messages"),
    "any": (_may_be_anything, "anything"),
    "key": (_may_be_key, "texts or whole numbers"),
}


def records_of(shape: Shape, arrays: Sequence[Any], seek: int, row: int, place: str) -> Iterator[Chunk]:
    """Yield the rows of ``arrays``, one of each field, as records: the first stands at cursor ``(seek, row)``.

    ``place`` is what they lie in, for messages. Chunks are about a MiB at most, unless one record is more.
    """
    if shape.whole:
        names = [field.key for field in shape.fields]
        yield Chunk(seek, row, BatchRows(pa.RecordBatch.from_arrays(list(arrays), names=names)))
        return
    values: list[Value] = []
    held, first = 0, row
    for columns in _parts(shape, arrays, row, place):
        for found in zip(*columns, strict=True):
            value = shape.value_of(found)
            if isinstance(value, Bad) and not value.where:
                value = value._replace(where=f"{place}, row {first + len(values)}")
            values.append(value)
            held += len(value) if isinstance(value, str) else 0
            if held >= _CHUNK_BYTES:
                yield Chunk(seek, first, values)
                first, values, held = first + len(values), [], 0
    if values:
        yield Chunk(seek, first, values)


def _parts(shape: Shape, arrays: Sequence[Any], row: int, place: str) -> Iterator[list[Sequence[object]]]:
    """Yield the columns of some consecutive rows at a time, as Python's objects."""
    rows = len(arrays[0])
    for start in range(0, rows, _MOST_ROWS):
        some = [plain(array.slice(start, _MOST_ROWS)) for array in arrays]
        count = len(some[0])
        step = max(1, count * _PART_BYTES // max(1, *(array.nbytes for array in some)))
        for at in range(0, count, step):
            begin = row + start + at
            yield [
                _objects(array.slice(at, step), field, begin, place)
                for array, field in zip(some, shape.fields, strict=True)
            ]


def _objects(array: Any, field: Field, row: int, place: str) -> Sequence[object]:  # noqa: ANN401
    if field.kind != "any" and is_text(array.type):
        return texts_of(innermost(array), lambda index: f"{place}, row {row + index}")
    return objects_of(array, nulls=field.kind != "messages")
