"""The text of a JSON record: fast by orjson, and once more with care where that refuses it."""

from __future__ import annotations

import json

import orjson

from streamfeed.formats.fields import text_of
from streamfeed.formats.protocol import Bad, Value

__all__ = ["careful_object", "careful_text", "lone_surrogate", "object_in_json", "text_in_json"]


def text_in_json(data: bytes, field: str, where: str = "", what: str = "the line") -> Value:
    """Return the text at ``field`` of the JSON object ``data``; a :class:`Bad` at ``where`` names it ``what``."""
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        return careful_text(data, field, where, what)
    return text_of(record, field, where)


def careful_text(data: bytes, field: str, where: str, what: str) -> Value:
    """Do the same with the standard library; see :func:`careful_object`."""
    record = careful_object(data, where, what)
    if isinstance(record, Bad):
        return record
    value = text_of(record, field, where)
    return (lone_surrogate(value, field, where) or value) if isinstance(value, str) else value


def object_in_json(data: bytes, where: str = "", what: str = "the line") -> object:
    """Return what the JSON ``data`` says; a :class:`Bad` at ``where`` names it ``what``."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return careful_object(data, where, what)


def careful_object(data: bytes, where: str, what: str) -> object:
    """Do the same with the standard library.

    It says better what is wrong, and it takes what others write outside the standard: NaN, integers of any size, lone
    surrogates in fields that are not asked for.
    """
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        return Bad(where, f"{what} is not valid UTF-8: {error.reason} at its byte {error.start}")
    except json.JSONDecodeError as error:
        return Bad(where, f"{what} is not valid JSON: {error.msg} at its character {error.pos}")
    except (ValueError, RecursionError) as error:
        return Bad(where, f"{what} is not valid JSON: {error}")


def lone_surrogate(text: str, field: str, where: str) -> Bad | None:
    """Return what is bad about a text that has a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(error.object[error.start]):04X}"
        return Bad(where, f"field {field!r} has a lone surrogate, {found}, at character {error.start}")
    return None
