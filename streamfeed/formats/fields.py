"""Where a record's text is: dotted field names in a decoded object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.formats.protocol import Bad

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["found_at", "listed", "text_of", "type_name"]

_NAMES = {dict: "an object", list: "a list", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
_MOST_NAMES = 20


def type_name(value: object) -> str:
    """Return the JSON type of ``value`` in words, "a list" say."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def listed(names: Iterable[object]) -> str:
    """Return ``names`` joined for a message, at most the first twenty."""
    found = [str(name) for name in names]
    more = f" and {len(found) - _MOST_NAMES:,} more" if len(found) > _MOST_NAMES else ""
    return (", ".join(found[:_MOST_NAMES]) + more) or "none"


def text_of(record: object, field: str, where: str = "") -> str | Bad | None:
    """Return the text at ``field`` of ``record``, ``None`` where it or anything on the way to it is null.

    ``meta.body`` is the key ``meta.body`` where there is one, else ``body`` inside ``meta``. No such field, or one that
    is no string, is a :class:`Bad` at ``where``.
    """
    value = found_at(record, field, where)
    if value is None or isinstance(value, str | Bad):
        return value
    return Bad(where, f"field {field!r} is {type_name(value)}, not a string")


def found_at(record: object, field: str, where: str = "") -> object:
    """Return whatever is at ``field`` of ``record``, looked up as :func:`text_of` does."""
    if not isinstance(record, dict):
        return Bad(where, f"the record is {type_name(record)}, not an object")
    return _walk(record, field, field, where)


def _walk(value: dict[str, object], rest: str, field: str, where: str) -> object:
    if rest in value:
        return value[rest]
    for end in range(len(rest) - 1, 0, -1):  # the longest literal key wins
        head = rest[:end]
        if rest[end] == "." and head in value:
            return _inside(value[head], head, rest[end + 1 :], field, where)
    inside = "" if rest == field else f" of {field[: -len(rest) - 1]!r}"
    return Bad(where, f"there is no field {field!r}; fields{inside} present: {listed(value)}")


def _inside(child: object, head: str, rest: str, field: str, where: str) -> object:
    if child is None:
        return None
    if isinstance(child, dict):
        return _walk(child, rest, field, where)
    path = field[: -len(rest) - 1] if field.endswith("." + rest) else head
    return Bad(where, f"there is no field {field!r}: {path!r} is {type_name(child)}, not an object")
