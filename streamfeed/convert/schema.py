"""Columns of records that come as JSON: types by what all the records of a shard hold, and nothing else.

A null takes any type, a whole number becomes a float where other records have one and no digit is lost, structs get the
union of their fields, and one that has no field in any record is null. Two types otherwise are an error: text of JSON
in their place would be another corpus.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MixedTypesError", "array_of", "table_of", "unified"]

_NULL, _INT, _FLOAT = pa.null(), pa.int64(), pa.float64()
_PLAIN = {bool: pa.bool_(), int: _INT, float: _FLOAT, str: pa.string(), bytes: pa.binary(), type(None): _NULL}
_EXACT = 1 << 53  # whole numbers up to here are floats without loss
_MOST = 1 << 63


class MixedTypesError(Exception):
    """A field with values that no column holds; ``field`` is its name, ``cause`` what was found."""

    def __init__(self, field: str, cause: str) -> None:
        super().__init__(f"field {field!r} {cause}")
        self.field = field
        self.cause = cause


def table_of(records: Sequence[Mapping[str, object]], schema: Any = None) -> Any:  # noqa: ANN401
    """Return records as an Arrow table, by ``schema``, or by what they hold.

    Raises :class:`MixedTypesError`.
    """
    names, columns = _columns(records)
    if schema is None:
        schema = pa.schema([(name, _type(column, name)) for name, column in zip(names, columns, strict=True)])
    found = dict(zip(names, columns, strict=True))
    nothing: list[object] = [None] * len(records)
    arrays = [array_of(found.get(field.name, nothing), field) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema) if arrays else pa.table({"": pa.nulls(len(records))}).select([])


def _columns(records: Sequence[Mapping[str, object]]) -> tuple[list[str], list[list[object]]]:
    """Return the names of all fields, in the order in which they come first, and the values of each."""
    if records:
        keys = tuple(records[0])
        if all(tuple(record) == keys for record in records):
            return list(keys), [list(column) for column in zip(*(record.values() for record in records), strict=True)]
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, [[record.get(name) for record in records] for name in names]


def array_of(values: list[object], field: Any) -> Any:  # noqa: ANN401
    """Return values as an array of the field's type; raises :class:`MixedTypesError` where one has no place in it."""
    if pa.types.is_null(field.type):
        return pa.nulls(len(values))
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError) as error:
        raise MixedTypesError(field.name, f"cannot be a column of {field.type}: {error}") from error


def _type(values: list[object], name: str) -> Any:  # noqa: ANN401
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if len(kinds) == 1 and (kind := _PLAIN.get(next(iter(kinds)))) is not None:
        if kind == _INT:
            _check_whole(values, _MOST, name)
        return kind
    found = _NULL
    for kind in sorted(kinds, key=lambda one: one.__name__):
        same = [value for value in values if type(value) is kind]
        found = unified(found, _type_of(same, kind, name), name)
    if found == _FLOAT and int in kinds:
        _check_whole([value for value in values if type(value) is int], _EXACT + 1, name)
    return found


def _type_of(values: list[Any], kind: type, name: str) -> Any:  # noqa: ANN401
    """Return the type of values that are all of one class of Python."""
    if kind is list:
        return pa.list_(_type([one for value in values for one in value], f"{name}[]"))
    if kind is dict:
        names = list(dict.fromkeys(key for value in values for key in value))
        return (
            _NULL
            if not names
            else pa.struct([(key, _type([value.get(key) for value in values], f"{name}.{key}")) for key in names])
        )
    plain = _PLAIN.get(kind)
    if plain is None:
        raise MixedTypesError(name, f"holds values of type {kind.__name__}")
    if plain == _INT:
        _check_whole(values, _MOST, name)
    return plain


def _check_whole(values: Sequence[Any], limit: int, name: str) -> None:
    strange = next((value for value in values if value is not None and not -limit <= value < limit), None)
    if strange is not None:
        what = "a whole number of more than 64 bits" if limit == _MOST else "floats, and a whole number none can hold"
        raise MixedTypesError(name, f"holds {what} ({strange})")


def _is_text(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def unified(left: Any, right: Any, name: str) -> Any:  # noqa: ANN401
    """Return the type that holds the values of both types; raises :class:`MixedTypesError`."""
    types = pa.types
    if left == right or types.is_null(right):
        return left
    if types.is_null(left):
        return right
    if {left, right} == {_INT, _FLOAT}:
        return _FLOAT
    if types.is_list(left) and types.is_list(right):
        return pa.list_(unified(left.value_type, right.value_type, f"{name}[]"))
    if types.is_struct(left) and types.is_struct(right):
        fields = {left.field(i).name: left.field(i).type for i in range(left.num_fields)}
        for i in range(right.num_fields):
            field = right.field(i)
            known = fields.get(field.name)
            fields[field.name] = field.type if known is None else unified(known, field.type, f"{name}.{field.name}")
        return pa.struct(list(fields.items()))
    for alike in (types.is_integer, types.is_floating, _is_text, _is_bytes):
        if alike(left) and alike(right):
            with contextlib.suppress(pa.ArrowException):
                schemas = [pa.schema([("", kind)]) for kind in (left, right)]
                return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    raise MixedTypesError(name, f"is {left} in some records and {right} in others")
