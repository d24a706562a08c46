"""Arrow arrays as Python's objects: lists and structs a column at a time, far faster than a value at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamfeed.formats.kinds import without_nulls
from streamfeed.formats.protocol import Bad

__all__ = ["objects_of"]

_BROKEN = (ValueError, OverflowError, pa.ArrowException)


def objects_of(array: Any, *, nulls: bool) -> list[object]:  # noqa: ANN401
    """Return the values; ``nulls=False`` leaves the keys of structs out that are null.

    Maps are dictionaries. Where a value cannot be had, only that one is :class:`Bad`.
    """
    try:
        return _objects(array, nulls=nulls)
    except _BROKEN:
        return [_one(scalar, nulls=nulls) for scalar in array]


def _objects(array: Any, *, nulls: bool) -> list[object]:  # noqa: ANN401
    types, kind = pa.types, array.type
    if types.is_string(kind) or types.is_large_string(kind):
        return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    if (types.is_integer(kind) or types.is_boolean(kind)) and not array.null_count:
        return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(array, nulls=nulls)
    if types.is_struct(kind) and kind.num_fields:
        return _structs(array, nulls=nulls)
    found = array.to_pylist(maps_as_pydicts="lossy")
    return list(found) if nulls else [without_nulls(value) for value in found]


def _lists(array: Any, *, nulls: bool) -> list[object]:  # noqa: ANN401
    bounds = array.offsets.to_pylist()
    first = bounds[0]
    inner = _objects(array.values.slice(first, bounds[-1] - first), nulls=nulls)
    found: list[object] = [inner[bounds[i] - first : bounds[i + 1] - first] for i in range(len(array))]
    return _with_nulls(found, array)


def _structs(array: Any, *, nulls: bool) -> list[object]:  # noqa: ANN401
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    columns = [_objects(array.field(i), nulls=nulls) for i in range(len(names))]
    rows = zip(*columns, strict=True)
    if nulls:
        return _with_nulls([dict(zip(names, row, strict=True)) for row in rows], array)
    found: list[object] = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows
    ]
    return _with_nulls(found, array)


def _with_nulls(values: list[object], array: Any) -> list[object]:  # noqa: ANN401
    if not array.null_count:
        return values
    return [None if null else value for value, null in zip(values, array.is_null().to_pylist(), strict=True)]


def _one(scalar: Any, *, nulls: bool) -> object:  # noqa: ANN401
    try:
        value = scalar.as_py(maps_as_pydicts="lossy")
    except UnicodeDecodeError as error:
        return Bad("", f"the text is not valid UTF-8: {error.reason} at its byte {error.start}")
    except _BROKEN as error:
        return Bad("", f"a value of type {scalar.type} cannot be read ({error})")
    return value if nulls else without_nulls(value)
