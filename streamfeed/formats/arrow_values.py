"""The values of one Arrow column, read buffer by buffer: a batch of any size takes little memory.

See :mod:`streamfeed.formats.arrow_buffers` for what is read of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfeed.formats.arrow import innermost
from streamfeed.formats.arrow_buffers import Buffers, buffer_of
from streamfeed.formats.arrow_column import Column, Place
from streamfeed.formats.arrow_messages import Batch, Message, damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["ColumnReader"]

_BLOCK_ROWS = 1 << 17  # rows whose offsets are held at a time
_PART_BYTES = 512 << 10  # every lane holds one part
_PART_ROWS = 2048
_VIEW = np.dtype([("size", "<i4"), ("head", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE = 12  # bytes of a view's text that lie in the view itself


class ColumnReader:
    """Reads the rows of one column from messages of one shard."""

    def __init__(self, raw: RawFile, file: ShardFile, column: Column) -> None:
        self._raw = raw
        self._file = file
        self._column = column
        self._dictionary: Any = None
        self._sizes: Any = None

    def stored(self, batch: Batch) -> int:
        """Return the stored bytes of the column in ``batch``, about (a dictionary not counted)."""
        first = buffer_of(batch, self._column.place)
        return sum(size for _, size in batch.buffers[first : first + self._buffers(batch)])

    def learn(self, message: Message) -> None:
        """Take the dictionary in ``message``: in place of the one before, or behind it."""
        batch = self._batch(message)
        values = Buffers(self._raw, self._file, message, batch)
        parts = [part for _, part in self._parts(values, None, 0, Place(0, 0, 0), self._column.kind)]
        found = pa.concat_arrays(parts) if parts else pa.array([], self._column.kind)
        known = self._dictionary if message.delta else None
        self._dictionary = innermost(found) if known is None else pa.concat_arrays([known, innermost(found)])
        null = pa.types.is_null(self._dictionary.type)
        self._sizes = pa.nulls(len(found), pa.int64()) if null else pc.binary_length(self._dictionary)

    def rows(self, message: Message, skip: int) -> Iterator[tuple[int, Any]]:
        """Yield the rows behind the first ``skip`` in small arrays, each with the number of its first row."""
        batch = self._batch(message)
        column = self._column
        places = [*column.parents, column.place]
        if any(place.node >= len(batch.nodes) or batch.nodes[place.node][0] != batch.rows for place in places):
            raise damaged(self._file, message.begin, "the column has another number of rows than its batch")
        buffers = Buffers(self._raw, self._file, message, batch)
        if column.index is None:
            yield from self._parts(buffers, places, skip, column.place, column.kind)
            return
        for row, indices in self._fixed(buffers, places, skip, column.place, column.index):
            yield from self._looked_up(message, row, indices)

    def _buffers(self, batch: Batch) -> int:
        if self._column.index is not None:
            return 2
        if not _is_view(self._column.kind):
            return int(self._column.kind.num_buffers)
        views = self._column.place.views
        return 2 + (batch.variadic[views] if views < len(batch.variadic) else 0)

    def _batch(self, message: Message) -> Batch:
        if message.batch is None:
            raise damaged(self._file, message.begin, "a batch of rows was expected here")
        return message.batch

    def _looked_up(self, message: Message, row: int, indices: Any) -> Iterator[tuple[int, Any]]:  # noqa: ANN401
        """Yield the texts that ``indices`` stand for; a dictionary can hide how large its rows are."""
        if self._dictionary is None:
            raise damaged(self._file, message.begin, "the column's dictionary is not in front of it")
        try:
            found = pa.DictionaryArray.from_arrays(indices, self._dictionary)
        except (pa.ArrowException, IndexError) as error:
            raise damaged(self._file, message.begin, f"a row lies outside of the dictionary ({error})") from error
        sizes = pc.fill_null(pc.take(self._sizes, indices), 0).to_numpy(zero_copy_only=False)
        for start, stop in _cuts(np.concatenate([[0], np.cumsum(sizes)])):
            yield row + start, found.slice(start, stop - start).dictionary_decode()

    def _parts(
        self,
        buffers: Buffers,
        nodes: list[Place] | None,
        skip: int,
        place: Place,
        kind: Any,  # noqa: ANN401
    ) -> Iterator[tuple[int, Any]]:
        """Yield small arrays of the text type ``kind``; ``nodes`` may be null (by default the place's own)."""
        nodes = [place] if nodes is None else nodes
        types = pa.types
        if types.is_null(kind):
            for row in range(skip, buffers.rows, _PART_ROWS):
                yield row, pa.nulls(min(_PART_ROWS, buffers.rows - row))
        elif types.is_fixed_size_binary(kind):
            yield from self._fixed(buffers, nodes, skip, place, kind)
        elif _is_view(kind):
            yield from _views(buffers, nodes, skip, place)
        else:
            yield from _strings(buffers, nodes, skip, place, kind)

    def _fixed(
        self,
        buffers: Buffers,
        nodes: list[Place],
        skip: int,
        place: Place,
        kind: Any,  # noqa: ANN401
    ) -> Iterator[tuple[int, Any]]:
        width = kind.byte_width
        rows = max(1, min(_PART_ROWS, _PART_BYTES // max(1, width)))
        for row in range(skip, buffers.rows, rows):
            stop = min(row + rows, buffers.rows)
            data = buffers.read(place, 1, row * width, stop * width)
            valid = buffers.valid(nodes, row, stop)
            yield row, pa.Array.from_buffers(kind, stop - row, [_bitmap(valid), pa.py_buffer(data)])


def _strings(
    buffers: Buffers,
    nodes: list[Place],
    skip: int,
    place: Place,
    kind: Any,  # noqa: ANN401
) -> Iterator[tuple[int, Any]]:
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    width, code = (8, "<i8") if large else (4, "<i4")
    for first in range(skip, buffers.rows, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, buffers.rows)
        bounds = np.frombuffer(buffers.read(place, 1, first * width, (last + 1) * width), code)
        if bounds[0] < 0 or (np.diff(bounds) < 0).any():
            raise buffers.damaged("the offsets of its texts are not in order")
        buffers.expect(place, 2, int(bounds[0]))
        valid = buffers.valid(nodes, first, last)
        for start, stop in _cuts(bounds):
            data = buffers.read(place, 2, int(bounds[start]), int(bounds[stop]))
            offsets = bounds[start : stop + 1] - bounds[start]
            part = None if valid is None else valid[start:stop]
            held = [_bitmap(part), pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
            yield first + start, pa.Array.from_buffers(kind, stop - start, held)


def _views(buffers: Buffers, nodes: list[Place], skip: int, place: Place) -> Iterator[tuple[int, Any]]:
    """Yield rows of views as large binary; of each data buffer only the range that the rows point into is read."""
    count = buffers.variadic[place.views] if place.views < len(buffers.variadic) else 0
    for first in range(skip, buffers.rows, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, buffers.rows)
        raw = buffers.read(place, 1, first * 16, last * 16)
        views = np.frombuffer(raw, _VIEW)
        valid = buffers.valid(nodes, first, last)
        sizes = views["size"].astype(np.int64) if valid is None else np.where(valid, views["size"], 0).astype(np.int64)
        if (sizes < 0).any():
            raise buffers.damaged("a text has a negative size")
        for start, stop in _cuts(np.concatenate([[0], np.cumsum(sizes)])):
            data = _viewed(buffers, place, count, views[start:stop], sizes[start:stop])
            offsets = np.concatenate([[0], np.cumsum(sizes[start:stop])]).astype(np.int64)
            part = None if valid is None else valid[start:stop]
            held = [_bitmap(part), pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
            yield first + start, pa.Array.from_buffers(pa.large_binary(), stop - start, held)


def _viewed(buffers: Buffers, place: Place, count: int, views: NDArray[Any], sizes: NDArray[np.int64]) -> bytes:
    """Return the texts of ``views``, joined."""
    far = sizes > _INLINE
    ranges: dict[int, tuple[int, bytes | memoryview]] = {}
    for number in np.unique(views["buffer"][far]).tolist():
        if not 0 <= number < count:
            raise buffers.damaged("a text lies in a buffer that is not there")
        ours = far & (views["buffer"] == number)
        begin = int(views["offset"][ours].min())
        end = int((views["offset"][ours].astype(np.int64) + sizes[ours]).max())
        ranges[number] = begin, buffers.read(place, 2 + number, begin, end)
    inline = memoryview(views.tobytes())
    pieces: list[bytes | memoryview] = []
    numbers, offsets = views["buffer"].tolist(), views["offset"].tolist()
    for i, size in enumerate(sizes.tolist()):
        if size <= _INLINE:
            pieces.append(inline[16 * i + 4 : 16 * i + 4 + size])
        else:
            begin, data = ranges[numbers[i]]
            pieces.append(data[offsets[i] - begin : offsets[i] - begin + size])
    return b"".join(pieces)


def _cuts(bounds: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Cut rows between ``bounds`` so that no part has many bytes, unless it is one row, or many rows."""
    start, rows = 0, len(bounds) - 1
    while start < rows:
        fits = int(np.searchsorted(bounds, bounds[start] + _PART_BYTES, side="right")) - 1
        stop = min(max(fits, start + 1), start + _PART_ROWS, rows)
        yield start, stop
        start = stop


def _bitmap(valid: NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _is_view(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
