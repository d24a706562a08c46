"""What a run reads of a record: one text, or several fields.

Of several fields a value is the JSON text of ``{key: field, ...}``, so that a window holds UTF-8 whatever is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from streamfeed.formats.fields import found_at, text_of, type_name
from streamfeed.formats.jsontext import lone_surrogate
from streamfeed.formats.kinds import Labels, label_of, messages_of
from streamfeed.formats.protocol import Bad

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfeed.formats.protocol import Value

__all__ = ["Field", "FieldKind", "Shape"]

FieldKind = Literal["text", "label", "messages", "any"]


class Field(NamedTuple):
    """One field of a record: found by ``name`` (None: what the format calls its text), handed on as ``key``.

    Keys that objectives know: ``text``, ``text_pair``, ``label``, ``messages``, ``prompt``, ``completion``.

    A ``text`` is a string; a ``label`` becomes a number; ``messages`` are a list of objects with ``role`` and
    ``content``; ``any`` is whatever JSON can say. A null drops the record, but for ``any``.
    """

    key: str
    name: str | None
    kind: FieldKind


@dataclass(frozen=True)
class Shape:
    """``text`` alone (None: what the format calls its text), or ``fields`` where there are any.

    ``labels`` are the names of classes in their order; without them labels are numbers below ``classes``.
    """

    text: str | None = None
    fields: tuple[Field, ...] = ()
    labels: tuple[str, ...] = ()
    classes: int = 0

    @property
    def plain(self) -> bool:
        """Whether a value is the text itself."""
        return not self.fields

    def named(self, text: str) -> Shape:
        """Return the shape where the format calls its text ``text``: no name is None any more."""
        fields = tuple(field._replace(name=text) if field.name is None else field for field in self.fields)
        return replace(self, text=self.text or text, fields=fields)

    def pick(self, record: object, where: str = "") -> dict[str, Any] | Bad | None:
        """Return the fields of a decoded record, by key; None where one is null that may not be.

        Names are looked up as :func:`streamfeed.formats.fields.text_of` does. A record without a field, and a field of
        another type, is :class:`Bad` at ``where``.
        """
        if isinstance(record, dict):
            return self.checked(
                [record[name] if name in record else found_at(record, name, where) for name in self._names], where
            )
        return self.checked([found_at(record, name, where) for name in self._names], where)

    def checked(self, found: Iterable[object], where: str = "") -> dict[str, Any] | Bad | None:
        """Do the same with what was found in a record already, in the order of the fields; one may be :class:`Bad`."""
        picked: dict[str, Any] = {}
        null = False
        for field, value in zip(self.fields, found, strict=True):
            key, _, kind = field
            if value.__class__ is str and (kind == "text" or kind == "any"):
                picked[key] = value
                continue
            one = self._checked(field, value)
            if isinstance(one, Bad):
                return one if one.where else one._replace(where=where)
            null = null or (one is None and kind != "any")
            picked[key] = one
        return None if null else picked

    def value(self, record: object, where: str = "") -> Value:
        """Return what :meth:`pick` does as JSON text; of a plain shape, the text itself."""
        if not self.fields:
            return text_of(record, self.text or "text", where)
        return self._as_json(self.pick(record, where), where)

    def value_of(self, found: Iterable[object], where: str = "") -> Value:
        """Return what :meth:`checked` does as JSON text."""
        return self._as_json(self.checked(found, where), where)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(field.name or field.key for field in self.fields)

    @cached_property
    def _numbered(self) -> Labels:
        return Labels(self.labels, self.classes)

    def _checked(self, field: Field, value: object) -> object:
        kind = field.kind
        if value.__class__ is Bad or kind == "any":
            return value
        name = field.name or field.key
        if kind == "text":
            if value is None or isinstance(value, str):
                return value
            return Bad("", f"field {name!r} is {type_name(value)}, not a string")
        if kind == "label":
            return label_of(value, name, self._numbered)
        return messages_of(value, name)

    def _as_json(self, picked: dict[str, Any] | Bad | None, where: str) -> Value:
        if picked is None or isinstance(picked, Bad):
            return picked
        try:
            return orjson.dumps(picked, _said, _OPTIONS).decode()
        except TypeError:
            return self._unsaid(picked, where)

    def _unsaid(self, picked: dict[str, Any], where: str) -> Bad:
        """Return what of a record JSON cannot say."""
        for field in self.fields:
            name = field.name or field.key
            try:
                orjson.dumps(picked[field.key], _said, _OPTIONS)
            except TypeError as error:
                value = picked[field.key]
                found = lone_surrogate(value, name, where) if isinstance(value, str) else None
                return found or Bad(where, f"field {name!r} holds what JSON cannot say: {error.__cause__ or error}")
        raise AssertionError("each field can be said, and all of them cannot")


_OPTIONS = orjson.OPT_NON_STR_KEYS  # the keys of a map column


def _said(value: object) -> object:
    """Return what JSON can say in place of a value of another type."""
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__}")
