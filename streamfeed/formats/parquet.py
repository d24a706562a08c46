"""Parquet: the columns that are read, one row group at a time, in batches bounded by bytes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats.arrow import innermost, texts_of
from streamfeed.formats.fields import listed
from streamfeed.formats.interleaved import Interleaved
from streamfeed.formats.parquet_batches import batches_of
from streamfeed.formats.parquet_footer import BROKEN, Footer, first_line
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece
from streamfeed.formats.record_columns import RecordColumn, records_of, wanted
from streamfeed.formats.whole import BatchRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.formats.shape import Shape
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["Parquet", "row_groups"]

_BUFFER = 256 << 10  # a column chunk is read in steps of this, so a row group of any size needs little memory
_BATCH = 512 << 10  # every lane holds one
_MOST_ROWS = 2048  # a dictionary can hide how large its rows are
_MOST_BYTES = 4 << 20


class _Columns(Protocol):
    """What is read of a row group."""

    batch_bytes: int
    """bytes of rows that are read at a time, about"""
    most_rows: int

    def leaves(self, shard: Any, file: ShardFile) -> list[int]:  # noqa: ANN401
        """Return the numbers of the leaf columns that are read; raises :class:`FieldError` where they cannot be."""

    def names(self) -> list[str] | None:
        """Return the columns' names, as pyarrow takes them (None: all); of those that :meth:`leaves` found."""

    def chunks(self, batch: Any, group: int, row: int) -> Iterator[Chunk]:  # noqa: ANN401
        """Yield the rows of ``batch``, which are those from ``row`` on of row group ``group``."""


class Parquet:
    """Reads one text column of Parquet, or those of a shape; dotted names reach into structs.

    Extents are row groups. A cursor's ``seek`` is a row group, ``skip`` the rows passed in it.
    """

    name = "parquet"

    def __init__(self, text: str | Shape) -> None:
        self._text = text

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard between row groups, by the stored bytes of the columns that are read; reads the footer.

        A shard whose footer or columns are wrong gives ``None``: reading it says what is wrong.
        """
        try:
            with closing(file.open()) as raw:
                shard = _open(raw, file)
                columns = self._columns()
                leaves = columns.leaves(shard, file)
                footer = Footer(shard, file, columns.names())
                groups = [footer.group(group) for group in range(shard.metadata.num_row_groups)]
        except (CorruptShardError, FieldError):
            return None
        pieces: list[Piece] = []
        start = total = 0
        for group, row_group in enumerate(groups):
            size = sum(row_group.column(leaf).total_compressed_size for leaf in leaves)
            if group > start and total + size > max_bytes:
                pieces.append(Piece(Extent(start, group), total))
                start, total = group, 0
            total += size
        return [*pieces, Piece(Extent(start, len(groups)), total)]

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the rows of the extent's row groups from ``cursor`` on; see :class:`Format`."""
        columns = self._columns()
        with closing(Interleaved(file)) as raw:
            shard = _open(raw, file)
            leaves = columns.leaves(shard, file)
            footer = Footer(shard, file, columns.names())
            groups = shard.metadata.num_row_groups
            skip = cursor.skip
            stop = groups if extent.stop < 0 else min(extent.stop, groups)
            for group in range(cursor.seek or extent.start, stop):
                rows = shard.metadata.row_group(group).num_rows
                if skip < rows:
                    meta = footer.group(group)
                    following = [group + 1] if group + 1 < stop and footer.sound(group + 1) else []
                    for ahead in (meta, *map(footer.group, following)):
                        raw.expect_all(_stored(ahead.column(leaf)) for leaf in leaves)
                    yield from _rows(shard, file, group, meta, leaves, columns, skip)
                skip = max(0, skip - rows)

    def _columns(self) -> _Columns:
        """Return what finds the columns in one shard."""
        if isinstance(self._text, str):
            return _TextColumn(self._text)
        if self._text.whole:
            return _AllColumns()
        return _TextColumn(self._text.text or "text") if self._text.plain else _RecordColumns(self._text)


def row_groups(file: ShardFile) -> list[tuple[int, int, int]]:
    """Return for every row group its rows, its bytes without compression, and the byte where it begins.

    Reads the footer.
    """
    with closing(file.open()) as raw:
        shard = _open(raw, file)
        footer = Footer(shard, file, None)
        groups = [footer.group(group) for group in range(shard.metadata.num_row_groups)]
        return [
            (group.num_rows, group.total_byte_size, _stored(group.column(0))[0] if group.num_columns else 0)
            for group in groups
        ]


class _TextColumn:
    """One column of text."""

    batch_bytes = _BATCH
    most_rows = _MOST_ROWS

    def __init__(self, field: str) -> None:
        self._field = field

    def names(self) -> list[str]:
        return [self._field]

    def leaves(self, shard: Any, file: ShardFile) -> list[int]:  # noqa: ANN401
        """Return the index of the leaf column that holds the text, after checking that it can."""
        meta = shard.metadata
        leaves = [meta.schema.column(i) for i in range(meta.num_columns)]
        found = [i for i, leaf in enumerate(leaves) if leaf.path == self._field]
        inside = [leaf for leaf in leaves if leaf.path.startswith(self._field + ".")]
        if not found and not inside:
            cause = f"there is no column {self._field!r}; columns present: {listed(leaf.path for leaf in leaves)}"
            raise FieldError(file.shard, "", cause, "set the source's text to one of them")
        problem = _not_text(leaves[found[0]]) if found else _group(inside[0])
        if problem:
            cause = f"column {self._field!r} holds {problem}, not text"
            raise FieldError(file.shard, "", cause, "set the source's text to a column of strings")
        return found[:1]

    def chunks(self, batch: Any, group: int, row: int) -> Iterator[Chunk]:  # noqa: ANN401
        for offset, array in _parts(self._array(batch)):
            yield _chunk(array, group, row + offset)

    def _array(self, batch: Any) -> Any:  # noqa: ANN401
        """Return the column's array; a column whose name has the dots wins over a struct's field."""
        names = batch.schema.names
        return innermost(batch.column(names.index(self._field) if self._field in names else 0))


class _AllColumns:
    """All columns, as they are."""

    batch_bytes = 8 << 20
    most_rows = 1 << 16

    def names(self) -> list[str] | None:
        return None

    def leaves(self, shard: Any, file: ShardFile) -> list[int]:  # noqa: ANN401
        _schema(shard, file)
        return list(range(shard.metadata.num_columns))

    def chunks(self, batch: Any, group: int, row: int) -> Iterator[Chunk]:  # noqa: ANN401
        yield Chunk(group, row, BatchRows(batch))


class _RecordColumns:
    """The columns of a shape."""

    batch_bytes = _BATCH
    most_rows = _MOST_ROWS

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._found: list[RecordColumn] = []

    def names(self) -> list[str]:
        return list(dict.fromkeys(".".join(column.names) for column in self._found))

    def leaves(self, shard: Any, file: ShardFile) -> list[int]:  # noqa: ANN401
        self._found = wanted(_schema(shard, file), self._shape, file.shard)
        names = self.names()
        paths = [shard.metadata.schema.column(i).path for i in range(shard.metadata.num_columns)]
        return [i for i, path in enumerate(paths) if any(path == one or path.startswith(one + ".") for one in names)]

    def chunks(self, batch: Any, group: int, row: int) -> Iterator[Chunk]:  # noqa: ANN401
        arrays = [_inside(batch, column.names) for column in self._found]
        yield from records_of(self._shape, arrays, group, row, f"row group {group}")


def _schema(shard: Any, file: ShardFile) -> Any:  # noqa: ANN401
    try:
        return shard.schema_arrow
    except BROKEN as error:
        cause = f"its schema is damaged ({first_line(error)})"
        raise CorruptShardError(file.shard, "footer", cause, "copy the shard again") from error


def _inside(batch: Any, names: tuple[str, ...]) -> Any:  # noqa: ANN401
    """Return the array at ``names``, null wherever a struct above it is."""
    array = batch.column(batch.schema.names.index(names[0]))
    for name in names[1:]:
        while isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        array = array.flatten()[[array.type.field(i).name for i in range(array.type.num_fields)].index(name)]
    return array


def _open(raw: RawFile, file: ShardFile) -> Any:  # noqa: ANN401
    try:
        return pq.ParquetFile(raw, buffer_size=_BUFFER, pre_buffer=False)
    except BROKEN as error:
        cause = f"this is no Parquet file, or one without its end ({first_line(error)})"
        raise CorruptShardError(file.shard, "footer", cause, "copy the shard again, or name its format") from error


def _rows(
    shard: Any,  # noqa: ANN401
    file: ShardFile,
    group: int,
    meta: Any,  # noqa: ANN401
    leaves: list[int],
    columns: _Columns,
    skip: int,
) -> Iterator[Chunk]:
    size = sum(meta.column(leaf).total_uncompressed_size for leaf in leaves)
    row, step = 0, max(1, min(columns.most_rows, columns.batch_bytes // (size // meta.num_rows + 1)))
    batches = shard.iter_batches(step, row_groups=[group], columns=columns.names(), use_threads=False)
    for batch in batches_of(batches, size, file, group):
        first = max(skip - row, 0)
        if first < batch.num_rows:
            yield from columns.chunks(batch.slice(first), group, row + first)
        row += batch.num_rows
    if row != meta.num_rows:
        cause = f"the row group has {row:,} rows, its footer says {meta.num_rows:,}"
        raise CorruptShardError(file.shard, f"row group {group}", cause, "write the shard again")


def _stored(chunk: Any) -> tuple[int, int]:  # noqa: ANN401
    """Return the range of bytes that a column chunk takes in the file."""
    start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset or 0
    if 0 < dictionary < start:
        start = dictionary
    return start, start + chunk.total_compressed_size


def _not_text(leaf: Any) -> str:  # noqa: ANN401
    logical = leaf.logical_type.type
    if leaf.max_repetition_level:
        return "lists"
    if logical in {"NULL", "UNKNOWN"} or (  # the type of a column of nothing but nulls
        leaf.physical_type == "BYTE_ARRAY" and logical in {"NONE", "STRING", "JSON", "ENUM"}
    ):
        return ""
    if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" and logical == "NONE":
        return ""
    return f"{leaf.physical_type} values" if logical == "NONE" else f"{logical} values"


def _group(leaf: Any) -> str:  # noqa: ANN401
    return "lists" if leaf.max_repetition_level else "structs"


def _chunk(array: Any, group: int, row: int) -> Chunk:  # noqa: ANN401
    return Chunk(group, row, texts_of(array, lambda index: f"row group {group}, row {row + index}"))


def _parts(array: Any) -> Iterator[tuple[int, Any]]:  # noqa: ANN401
    """Cut ``array`` so that no part has many more than 4 MiB, unless it is one row."""
    rows = max(1, len(array) * _MOST_BYTES // max(array.nbytes, 1))
    for start in range(0, len(array), rows):
        yield start, array.slice(start, rows)
