"""What a run reads of a record: one text, or several fields.

Of several fields a value is the JSON text of ``{key: field, ...}``, so that a window holds UTF-8 whatever is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from streamfeed.formats.protocol import Bad, Value

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
        raise NotImplementedError

    def pick(self, record: object, where: str = "") -> dict[str, Any] | Bad | None:
        """Return the fields of a decoded record, by key; None where one is null that may not be.

        Names are looked up as :func:`streamfeed.formats.fields.text_of` does. A record without a field, and a field of
        another type, is :class:`Bad` at ``where``.
        """
        raise NotImplementedError

    def value(self, record: object, where: str = "") -> Value:
        """Return what :meth:`pick` does as JSON text; of a plain shape, the text itself."""
        raise NotImplementedError
