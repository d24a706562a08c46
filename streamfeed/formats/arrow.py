"""Arrow arrays of any text type as Python strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfeed.formats.protocol import Bad, Value

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["innermost", "texts_of"]


def innermost(array: Any) -> Any:  # noqa: ANN401
    """Return the values inside structs of one field each, null wherever anything above is, without dictionaries."""
    while True:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_struct(kind):
            array = array.flatten()[0]  # unlike field(), flatten() carries the struct's own nulls
        elif pa.types.is_dictionary(kind):
            array = array.dictionary_decode()
        elif pa.types.is_fixed_size_binary(kind):
            array = array.cast(pa.binary())
        else:
            return array


def texts_of(array: Any, where: Callable[[int], str]) -> list[Value]:  # noqa: ANN401
    """Return the values of a string, binary or null array; those that are no UTF-8 are bad at ``where(index)``."""
    if pa.types.is_null(array.type):
        return [None] * len(array)
    try:
        found: list[Value] = _as(array, text=True).to_pylist()
    except UnicodeDecodeError:
        return [_decoded(data, i, where) for i, data in enumerate(_as(array, text=False).to_pylist())]
    return found


def _as(array: Any, *, text: bool) -> Any:  # noqa: ANN401
    """Return the same bytes under the other type, unchecked and uncopied."""
    types = pa.types
    if types.is_large_string(array.type) or types.is_large_binary(array.type):
        return array.view(pa.large_string() if text else pa.large_binary())
    if types.is_string(array.type) or types.is_binary(array.type):
        return array.view(pa.string() if text else pa.binary())
    return array.view(pa.string_view() if text else pa.binary_view())


def _decoded(data: bytes | None, index: int, where: Callable[[int], str]) -> Value:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return Bad(where(index), f"the text is not valid UTF-8: {error.reason} at its byte {error.start}")
