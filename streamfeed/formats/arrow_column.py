"""Where in an Arrow schema a text column is: its nodes and buffers among those of all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streamfeed.errors import FieldError
from streamfeed.formats.fields import listed

if TYPE_CHECKING:
    from streamfeed.formats.flatbuffer import Table

__all__ = ["Column", "Place", "Size", "find_column", "is_text", "size_of", "step_into", "storage_of"]


class Size(NamedTuple):
    """Nodes, buffers and columns of views that a type takes in a batch, with all that it holds."""

    nodes: int = 0
    buffers: int = 0
    views: int = 0

    def plus(self, other: Size) -> Size:
        """Return the sum of both."""
        return Size(self.nodes + other.nodes, self.buffers + other.buffers, self.views + other.views)


class Place(NamedTuple):
    """The node of a column in a batch, and its first buffer.

    ``views`` columns of views stand in front of it, each with as many more buffers as the batch says.
    """

    node: int
    buffer: int
    views: int


class Column(NamedTuple):
    """A column of text. ``kind`` is its type, that of the dictionary's values where ``index`` is the indices' type.

    ``place`` is its own place, ``parents`` are those of the structs around it; ``path`` are the numbers that lead to
    it, from the schema on.
    """

    kind: Any
    index: Any
    parents: tuple[Place, ...]
    place: Place
    path: tuple[int, ...]

    def dictionary_id(self, schema: Table) -> int:
        """Return the id of the column's dictionary, by the schema's metadata."""
        fields = schema.tables(1)
        for number in self.path[:-1]:
            fields = fields[number].tables(5)
        encoding = fields[self.path[-1]].table(4)
        return -1 if encoding is None else encoding.number(0, "<q")


def find_column(schema: Any, field: str, shard: str) -> Column:  # noqa: ANN401
    """Return the column ``field`` of ``schema``; a name that has the dots itself wins over a struct's field.

    Raises :class:`FieldError` where there is none, or one that holds no text.
    """
    path: list[int] = []
    parents: list[Place] = []
    fields, rest, before = list(schema), field, Size()
    while True:
        number, rest = step_into(fields, rest, field, shard, [one.name for one in schema])
        for earlier in fields[:number]:
            before = before.plus(size_of(earlier.type, shard))
        path.append(number)
        kind = storage_of(fields[number].type)
        if not rest:
            break
        parents.append(Place(*before))
        before = before.plus(Size(1, 1, 0))
        fields = [kind.field(i) for i in range(kind.num_fields)]
    index = None
    if pa.types.is_dictionary(kind):
        index, kind = kind.index_type, storage_of(kind.value_type)
    if not is_text(kind):
        raise FieldError(
            shard, "", f"column {field!r} holds {kind} values, not text", "set the source's text to a column of strings"
        )
    return Column(kind, index, tuple(parents), Place(*before), tuple(path))


def step_into(fields: list[Any], rest: str, field: str, shard: str, present: list[str]) -> tuple[int, str]:
    """Return the number of the field that ``rest`` begins with, and what of ``rest`` is inside it."""
    names = [one.name for one in fields]
    if rest in names:
        return names.index(rest), ""
    for end in range(len(rest) - 1, 0, -1):
        if rest[end] == "." and rest[:end] in names:
            number = names.index(rest[:end])
            if pa.types.is_struct(storage_of(fields[number].type)):
                return number, rest[end + 1 :]
    inside = "" if rest == field else f" in {field[: -len(rest) - 1]!r}: {listed(names)}"
    cause = f"there is no column {field!r}; columns present: {listed(present)}"
    if inside:
        cause = f"there is no column {field!r}; fields present{inside}"
    raise FieldError(shard, "", cause, "set the source's text to one of them")


def storage_of(kind: Any) -> Any:  # noqa: ANN401
    """Return what a type is stored as: of an extension, its storage."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def is_text(kind: Any) -> bool:  # noqa: ANN401
    """Return whether a column of this type may hold texts."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_null(kind)
    )


def size_of(kind: Any, shard: str) -> Size:  # noqa: ANN401
    """Return what a type takes in a batch."""
    kind = storage_of(kind)
    types = pa.types
    if types.is_dictionary(kind):
        return Size(1, 2, 0)
    own = int(kind.num_buffers)
    if types.is_null(kind) or types.is_run_end_encoded(kind) or types.is_union(kind):
        own -= 1  # in memory these have an empty place for a validity bitmap, in a batch they have none
    view = types.is_string_view(kind) or types.is_binary_view(kind)
    size = Size(1, own, int(view))
    if types.is_run_end_encoded(kind):
        inner = [kind.run_end_type, kind.value_type]
    elif types.is_nested(kind):
        inner = [kind.field(i).type for i in range(kind.num_fields)]
    else:
        inner = []
    for one in inner:
        size = size.plus(size_of(one, shard))
    return size
