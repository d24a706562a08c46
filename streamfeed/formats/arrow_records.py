"""Records of several columns of Arrow IPC: of a batch, each column as a whole, and nothing of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamfeed.formats.arrow_buffers import Buffers, buffer_of
from streamfeed.formats.arrow_layout import Layout, column_layout, dictionaries_of, is_view
from streamfeed.formats.arrow_messages import Batch, Message, damaged
from streamfeed.formats.record_columns import records_of, wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfeed.formats.arrow_column import Place
    from streamfeed.formats.flatbuffer import Table
    from streamfeed.formats.protocol import Chunk
    from streamfeed.formats.shape import Shape
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["RecordReader"]

_BROKEN = (pa.ArrowException, ValueError, TypeError, IndexError, OverflowError)


class RecordReader:
    """Reads the records of a shape from messages of one shard, whose ``schema`` has the metadata ``table``.

    Raises :class:`FieldError` where a column is missing, or is none that its kind may be.
    """

    def __init__(
        self,
        raw: RawFile,
        file: ShardFile,
        schema: Any,  # noqa: ANN401
        table: Table,
        shape: Shape,
    ) -> None:
        self._raw = raw
        self._file = file
        self._shape = shape = shape.all_of(schema.names)
        found = [column_layout(schema, table, column, file.shard) for column in wanted(schema, shape, file.shard)]
        self._layouts = [layout for layout, _ in found]
        self._parents = [parents for _, parents in found]
        inner = [one for layout in self._layouts for one in dictionaries_of(layout)]
        self._values = {one.dictionary: one.children[0] for one in inner}
        self._known: dict[int, _Both] = {}
        self.dictionaries = frozenset(self._values)
        """ids of the dictionaries that the columns need"""

    def stored(self, batch: Batch) -> int:
        """Return the stored bytes of the columns in ``batch`` (dictionaries not counted)."""
        ranges = {(buffer_of(batch, one.place), buffer_of(batch, one.end)) for one in self._layouts}
        return sum(size for start, stop in ranges for _, size in batch.buffers[start:stop])

    def learn(self, message: Message) -> None:
        """Take the dictionary in ``message``: in place of the one before, or behind it."""
        batch = _batch(message, self._file)
        number = message.dictionary
        buffers = Buffers(self._raw, self._file, message, batch)
        found = _both(buffers, batch, self._values[number], batch.rows, self._known)
        known = self._known.get(number) if message.delta else None
        self._known[number] = found if known is None else known.joined(found)

    def chunks(self, message: Message, skip: int, seek: int, place: str) -> Iterator[Chunk]:
        """Yield the records behind the first ``skip``, which stand at cursors ``(seek, skip)`` and following."""
        batch = _batch(message, self._file)
        buffers = Buffers(self._raw, self._file, message, batch)
        arrays: dict[int, Any] = {}
        for number in sorted(range(len(self._layouts)), key=lambda one: self._layouts[one].place):
            layout, parents = self._layouts[number], self._parents[number]
            if any(one.node >= len(batch.nodes) or batch.nodes[one.node][0] != batch.rows for one in parents):
                raise buffers.damaged("the column has another number of rows than its batch")
            array = _both(buffers, batch, layout, batch.rows, self._known).text
            arrays[number] = _under(array, buffers, parents).slice(skip)
        yield from records_of(self._shape, [arrays[one] for one in range(len(arrays))], seek, skip, place)


class _Both:
    """An array that is in order, but for what its texts say, and the same with bytes in place of texts."""

    def __init__(self, text: Any, data: Any) -> None:  # noqa: ANN401
        self.text = text
        self.data = data

    def joined(self, other: _Both) -> _Both:
        data = pa.concat_arrays([self.data, other.data])
        return _Both(pa.concat_arrays([self.text, other.text]), data)


def _both(buffers: Buffers, batch: Batch, layout: Layout, rows: int, known: Mapping[int, _Both]) -> _Both:
    try:
        read: dict[tuple[int, int], Any] = {}
        text, data = (_Arrays(buffers, batch, known, read, texts=texts).array(layout, rows) for texts in (True, False))
        data.validate(full=True)  # of texts that would also look at the UTF-8, of which each record has its own
    except _BROKEN as error:
        raise buffers.damaged(f"the column is damaged ({error})") from error
    return _Both(text, data)


class _Arrays:
    """Makes arrays of a batch's buffers; ``texts=False``: with bytes where texts are."""

    def __init__(
        self,
        buffers: Buffers,
        batch: Batch,
        known: Mapping[int, _Both],
        read: dict[tuple[int, int], Any],
        *,
        texts: bool,
    ) -> None:
        self._buffers = buffers
        self._batch = batch
        self._known = known
        self._read = read
        self._texts = texts

    def array(self, layout: Layout, rows: int | None = None) -> Any:  # noqa: ANN401
        """Return the array at ``layout``, of ``rows`` rows, or as many as its node says."""
        node = layout.place.node
        if node >= len(self._batch.nodes):
            raise self._buffers.damaged("the batch has too few columns for its schema")
        count, nulls = self._batch.nodes[node]
        if count < 0 or count != (count if rows is None else rows):
            raise self._buffers.damaged("the column has another number of rows than its batch")
        if pa.types.is_null(layout.kind):
            return pa.nulls(count)
        valid = self._buffer(layout.place, 0) if nulls else None
        nulls = nulls if valid is not None and len(valid) else 0
        if layout.dictionary >= 0:
            return self._dictionary(layout, count, valid if nulls else None, nulls)
        children = [self.array(child) for child in layout.children]
        kind = _of(layout.kind, [child.type for child in children], texts=self._texts)
        held = [self._buffer(layout.place, i) for i in range(1, kind.num_buffers + self._views(layout))]
        return pa.Array.from_buffers(kind, count, [valid if nulls else None, *held], nulls, 0, children)

    def _dictionary(self, layout: Layout, count: int, valid: Any, nulls: int) -> Any:  # noqa: ANN401
        if layout.dictionary not in self._known:
            raise self._buffers.damaged("the column's dictionary is not in front of it")
        both = self._known[layout.dictionary]
        indices = pa.Array.from_buffers(layout.kind.index_type, count, [valid, self._buffer(layout.place, 1)], nulls)
        indices.validate(full=True)
        return pa.DictionaryArray.from_arrays(indices, both.text if self._texts else both.data)

    def _views(self, layout: Layout) -> int:
        views = layout.place.views
        return self._batch.variadic[views] if is_view(layout.kind) and views < len(self._batch.variadic) else 0

    def _buffer(self, place: Place, number: int) -> Any:  # noqa: ANN401
        key = (buffer_of(self._batch, place), number)
        if key not in self._read:
            self._read[key] = pa.py_buffer(self._buffers.whole(place, number))
        return self._read[key]


_AS_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def _of(kind: Any, inner: list[Any], *, texts: bool) -> Any:  # noqa: ANN401
    """Return ``kind`` with the types ``inner`` of its children; with bytes in place of texts."""
    types = pa.types
    if not inner:
        return kind if texts else _AS_BYTES.get(kind, kind)
    if all(kind.field(i).type == one for i, one in enumerate(inner)):
        return kind
    fields = [kind.field(i).with_type(one) for i, one in enumerate(inner)]
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        return pa.map_(inner[0].field(0), inner[0].field(1))
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    makers = (
        (types.is_large_list, pa.large_list),
        (types.is_list_view, pa.list_view),
        (types.is_large_list_view, pa.large_list_view),
        (types.is_list, pa.list_),
    )
    return next(make(fields[0]) for is_one, make in makers if is_one(kind))


def _under(array: Any, buffers: Buffers, parents: list[Place]) -> Any:  # noqa: ANN401
    """Return ``array``, null wherever one of the structs ``parents`` around it is."""
    valid = buffers.valid(parents, 0, len(array))
    if valid is None:
        return array
    bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    around = pa.struct([pa.field("inside", array.type)])
    return pa.Array.from_buffers(around, len(array), [bits], int((~valid).sum()), 0, [array]).flatten()[0]


def _batch(message: Message, file: ShardFile) -> Batch:
    if message.batch is None:
        raise damaged(file, message.begin, "a batch of rows was expected here")
    return message.batch
