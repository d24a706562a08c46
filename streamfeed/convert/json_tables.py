"""JSON texts as columns by Arrow's own parser, where that gives what Python's objects would.

It is several times faster, and has views of its own: texts that look like times become times, a number that no float
holds loses digits, what is no UTF-8 passes. All of that is looked for, and then it is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["parsed"]

_EXACT = float(1 << 53)
_ALIKE = pa.types


def parsed(lines: Sequence[bytes]) -> Any:  # noqa: ANN401
    """Return records as an Arrow table, None where only a careful look at each of them would do."""
    if not lines or not all(line[:1] == b"{" and line[-1:] == b"}" for line in lines):
        return None
    data = pa.py_buffer(b"\n".join(lines))
    options = json.ReadOptions(use_threads=False, block_size=data.size + 1)
    try:
        table = json.read_json(data, options)
        plain = pa.schema([field.with_type(_without_times(field.type)) for field in table.schema])
        if plain != table.schema:
            table = json.read_json(data, options, json.ParseOptions(explicit_schema=plain))
        table.validate(full=True)
    except pa.ArrowException:
        return None
    fits = table.num_rows == len(lines) and len(set(table.column_names)) == table.num_columns
    if not fits or not all(_is_exact(chunk) for column in table.columns for chunk in column.chunks):
        return None
    return table


def _without_times(kind: Any) -> Any:  # noqa: ANN401
    if _ALIKE.is_temporal(kind):
        return pa.string()
    if _ALIKE.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if _ALIKE.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_without_times(kind.field(i).type)) for i in range(kind.num_fields)])
    return kind


def _is_exact(array: Any) -> bool:  # noqa: ANN401
    """Say whether all of the values, and all inside of them, are what Python's objects would give."""
    kind = array.type
    if _ALIKE.is_floating(kind):
        extremes = pc.min_max(array).as_py()
        return all(value is None or -_EXACT < value < _EXACT for value in extremes.values())
    if _ALIKE.is_list(kind):
        return _is_exact(array.flatten())
    if _ALIKE.is_struct(kind):
        return (
            kind.num_fields > 0 and len(set(_names(kind))) == kind.num_fields and all(map(_is_exact, array.flatten()))
        )
    return bool(_ALIKE.is_null(kind) or _ALIKE.is_boolean(kind) or _ALIKE.is_int64(kind) or _ALIKE.is_string(kind))


def _names(kind: Any) -> Iterator[str]:  # noqa: ANN401
    return (kind.field(i).name for i in range(kind.num_fields))
