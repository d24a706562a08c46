"""Records of several fields of a WebDataset tar: each field by its member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.formats.fields import found_at
from streamfeed.formats.jsontext import object_in_json
from streamfeed.formats.protocol import Bad, Value
from streamfeed.formats.samples import Sample, SampleReader, SampleText, doubled, place_of, text_in
from streamfeed.formats.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.formats.members import Member
    from streamfeed.formats.shape import Field

__all__ = ["SampleRecord", "reader_of"]


def reader_of(text: str | Shape | SampleReader) -> SampleReader:
    """Return what reads a text by its name, or records of a shape, from samples; a reader is itself."""
    if isinstance(text, str):
        return SampleText(text)
    if not isinstance(text, Shape):
        return text
    return SampleText(text.text or "txt") if text.plain else SampleRecord(text)


_SAMPLE_KEY = "__key__"


class SampleRecord:
    """Finds the fields of a shape in samples.

    A field is a member by its extension (``cls``), which is its text, or a field of a JSON member (``json.label``). A
    field of kind ``any`` that is a ``.json`` member as a whole is what it says. ``__key__`` is the sample's key, the
    name of its members in front of the extension.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        names = [field.name or field.key for field in shape.fields]
        self._ways = [None if name == _SAMPLE_KEY else SampleText(name) for name in names]
        self._members = [way for way in self._ways if way is not None]
        self.extensions = frozenset[str]().union(*(way.extensions for way in self._members))
        """extensions of the members that may hold a field"""

    def whole(self, sample: Sample) -> bool:
        """Return whether there is a member for every field."""
        return all(way.whole(sample) for way in self._members)

    def stored(self, sample: Sample) -> int:
        """Return the bytes of the members that hold the fields."""
        found = (way.found(sample) for way in self._members)
        return sum({member.data: member.size for member, _ in filter(None, found)}.values())

    def value(self, sample: Sample, data_of: Callable[[Member], bytes]) -> Value:
        """Return the record as JSON text, or what is bad about the sample."""
        where = place_of(sample)
        bad = doubled(sample, where)
        if bad is not None:
            return bad
        parsed: dict[int, object] = {}  # a member may hold several fields
        fields = zip(self._shape.fields, self._ways, strict=True)
        found = [
            sample.key if way is None else _field(field, way.data(sample, where, data_of), parsed, where)
            for field, way in fields
        ]
        return self._shape.value_of(found, where)


def _field(field: Field, read: tuple[Member, str, bytes] | Bad, parsed: dict[int, object], where: str) -> object:
    """Return a field of a sample by what was read of it."""
    if isinstance(read, Bad):
        return read
    member, path, data = read
    if not path and not (field.kind == "any" and member.name.lower().endswith(".json")):
        return text_in(data, member, where)
    if member.data not in parsed:
        parsed[member.data] = object_in_json(data, where, f"member {member.name!r}")
    found = parsed[member.data]
    return found if isinstance(found, Bad) or not path else found_at(found, path, where)
