"""What a field of each kind may be: a label, the messages of a conversation, the key of a hold-out."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from streamfeed.formats.fields import listed, type_name
from streamfeed.formats.jsontext import lone_surrogate, object_in_json
from streamfeed.formats.protocol import Bad

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Labels", "key_of", "label_of", "messages_of", "without_nulls"]

_DIGITS = 18
"""Digits of a number in text that is read as one: more is no label."""


class Labels:
    """The names of classes, or how many there are."""

    def __init__(self, names: tuple[str, ...], classes: int) -> None:
        self.names = names
        self.numbers: Mapping[str, int] = {name: number for number, name in enumerate(names)}
        self.classes = classes


def label_of(value: object, name: str, labels: Labels) -> int | Bad | None:
    """Return the number of the label ``value`` in the field ``name``.

    Where classes have names it is one of these. Else it is a number below their count, also as digits (a CSV or a tar
    holds text alone), or a boolean. White space around a text, a newline at a member's end say, is passed over.
    """
    if value is None:
        return None
    if labels.names:
        return _named(value, name, labels)
    number = _number(value)
    if number is None:
        found = repr(value[:80]) if isinstance(value, str) else type_name(value)
        return Bad("", f"field {name!r} is {found}, and a label is a whole number from 0 to {labels.classes - 1}")
    if not 0 <= number < labels.classes:
        return Bad("", f"field {name!r} is {number}, and labels are numbers from 0 to {labels.classes - 1}")
    return number


def _named(value: object, name: str, labels: Labels) -> int | Bad:
    if isinstance(value, str):
        number = labels.numbers.get(value)
        if number is None:
            number = labels.numbers.get(value.strip())
        if number is not None:
            return number
        return Bad("", f"field {name!r} is {value[:80]!r}, and labels are {listed(labels.names)}")
    advice = (
        "for labels that are numbers, give their count as classes and no names" if _number(value) is not None else ""
    )
    return Bad("", f"field {name!r} is {type_name(value)}, and labels are {listed(labels.names)}", advice)


def _number(value: object) -> int | None:
    if isinstance(value, int | Integral):  # a bool is an int, and numpy's integers are Integral
        return int(value)
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit() and len(text) <= _DIGITS:
            return int(text)
    return None


def key_of(value: object, name: str) -> str | Bad:
    """Return the key in the field ``name`` as text; a number, as its digits, is the same key as these in a CSV."""
    if isinstance(value, str) and value:
        return value if value.isascii() else lone_surrogate(value, name, "") or value
    if isinstance(value, int | Integral) and not isinstance(value, bool):
        return str(value)
    found = "empty" if value == "" else type_name(value)
    return Bad("", f"field {name!r} is {found}, and records are held out by it: a text, or a whole number")


def messages_of(value: object, name: str) -> list[dict[str, Any]] | Bad | None:
    """Return the messages in the field ``name``: a list of objects, or JSON text of one.

    Each has a string as ``role`` and as ``content``; parts of text are joined, and the content may be missing where
    something else is there, tool calls say. Keys that are null are left out: columns have them where others do not.
    """
    if isinstance(value, str):
        value = object_in_json(value.encode(errors="surrogatepass"), "", f"the text of field {name!r}")
    if value is None or isinstance(value, Bad):
        return value
    if not isinstance(value, list | tuple):
        return Bad("", f"field {name!r} is {type_name(value)}, not a list of messages")
    if not value:
        return Bad("", f"field {name!r} is a list without a message")
    messages: list[dict[str, Any]] = []
    for number, one in enumerate(value):
        if not isinstance(one, dict):
            return Bad("", f"message {number} of field {name!r} is {type_name(one)}, not an object")
        message = {key: part for key, part in one.items() if part is not None}
        problem = _problem(message)
        if problem:
            return Bad("", f"message {number} of field {name!r} {problem}")
        messages.append(message)
    return messages


def _problem(message: dict[str, Any]) -> str:
    """Return what is wrong with a message; parts of text in it are joined."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        return f"has {type_name(role)} as its role, not a string" if "role" in message else _missing("role", message)
    if isinstance(content, list | tuple):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            return "has a part in its content that is no text"
        message["content"] = "".join(str(text) for text in texts)
    elif content is None:
        return _missing("content", message) if len(message) < 2 else ""
    elif not isinstance(content, str):
        return f"has {type_name(content)} as its content, not a string"
    return ""


def _missing(key: str, message: dict[str, Any]) -> str:
    return f"has no {key}; keys present: {listed(message)}"


def without_nulls(value: object) -> object:
    """Return ``value`` without the keys that are null, at any depth.

    A column of structs gives every one of them all keys: those that a record does not have are null.
    """
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(one) for one in value]
    return value
