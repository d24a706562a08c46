"""What a run reads of a record: one text, or several fields.

Of several fields a value is the JSON text of ``{key: field, ...}``, so that a window holds UTF-8 whatever is read. A
key that a hold-out asks for is no part of it: it stands in front, as JSON text on a line of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from streamfeed.formats.fields import found_at, text_of, type_name
from streamfeed.formats.jsontext import lone_surrogate
from streamfeed.formats.kinds import Labels, key_of, label_of, messages_of
from streamfeed.formats.protocol import Bad

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfeed.formats.protocol import Value

__all__ = ["Field", "FieldKind", "Shape"]

FieldKind = Literal["text", "label", "messages", "any", "key"]

KEY = ""
"""Under this a record's key is found; no field of an objective is called so."""


class Field(NamedTuple):
    """One field of a record: found by ``name`` (None: what the format calls its text), handed on as ``key``.

    Keys that objectives know: ``text``, ``text_pair``, ``label``, ``messages``, ``prompt``, ``completion``.

    A ``text`` is a string; a ``label`` becomes a number; ``messages`` are a list of objects with ``role`` and
    ``content``; ``any`` is whatever JSON can say. A null drops the record, but for ``any``. A ``key`` is a string or a
    whole number, and becomes a string: without one the record is bad.
    """

    key: str
    name: str | None
    kind: FieldKind


@dataclass(frozen=True)
class Shape:
    """``text`` alone (None: what the format calls its text), or ``fields`` where there are any.

    ``labels`` are the names of classes in their order; without them labels are numbers below ``classes``. ``whole``
    stands for all the fields that there are, whatever their names: those of a table come as
    :class:`~streamfeed.formats.whole.BatchRows`. ``tokenizer`` is the fingerprint that shards of tokens must have;
    empty: any.
    """

    text: str | None = None
    fields: tuple[Field, ...] = ()
    labels: tuple[str, ...] = ()
    classes: int = 0
    whole: bool = False
    tokenizer: str = ""

    @property
    def plain(self) -> bool:
        """Whether a value is the text itself."""
        return not self.fields and not self.whole

    @cached_property
    def keyed(self) -> bool:
        """Whether a key stands in front of a value."""
        return bool(self.fields) and self.fields[-1].kind == "key"

    @cached_property
    def texts(self) -> bool:
        """Whether what an objective gets is a text, with a key in front of it or not: no record of fields."""
        return self.plain or (self.keyed and len(self.fields) == 2 and self.fields[0].kind == "text")

    @property
    def lone(self) -> str:
        """The key of the one field of a record that may be a text, empty where there are several fields or none."""
        return self.fields[0].key if len(self.fields) == 1 and not self.keyed else ""

    def with_key(self, name: str) -> Shape:
        """Return the shape with the field ``name`` as the record's key."""
        fields = self.fields or (Field("text", self.text, "text"),)
        return replace(self, text=None, fields=(*fields, Field(KEY, name, "key")))

    def all_of(self, names: Iterable[str]) -> Shape:
        """Return a shape of the fields ``names`` where this one stands for all there are."""
        return replace(self, fields=tuple(Field(name, name, "any") for name in names)) if self.whole else self

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
        """Return what :meth:`pick` does as JSON text; of a plain shape, the text itself; a key stands in front."""
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
        if kind == "key":
            return key_of(value, name)
        return messages_of(value, name)

    def _as_json(self, picked: dict[str, Any] | Bad | None, where: str) -> Value:
        if picked is None or isinstance(picked, Bad):
            return picked
        line = f"{orjson.dumps(picked.pop(KEY)).decode()}\n" if self.keyed else ""
        if self.texts:
            text = picked["text"]
            return line + text if text.isascii() else lone_surrogate(text, self._names[0], where) or line + text
        try:
            return line + orjson.dumps(picked, _said, _OPTIONS).decode()
        except TypeError:
            return self._unsaid(picked, where)

    def _unsaid(self, picked: dict[str, Any], where: str) -> Bad:
        """Return what of a record JSON cannot say."""
        for field in self.fields[: len(picked)]:
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
