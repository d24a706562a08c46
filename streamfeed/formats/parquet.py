"""Parquet: one column, one row group at a time, in batches bounded by bytes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats.arrow import innermost, texts_of
from streamfeed.formats.fields import listed
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["Parquet"]

_BUFFER = 256 << 10  # a column chunk is read in steps of this, so a row group of any size needs little memory
_BATCH = 256 << 10  # every lane holds one
_MOST_ROWS = 2048  # a dictionary can hide how large its rows are
_MOST_BYTES = 4 << 20
_BROKEN = (pa.ArrowException, OSError, ValueError)  # the store's own failures are ReadError, which is none of these


class Parquet:
    """Reads one text column of Parquet; dotted names reach into structs.

    Extents are row groups. A cursor's ``seek`` is a row group, ``skip`` the rows passed in it.
    """

    name = "parquet"

    def __init__(self, field: str) -> None:
        self._field = field

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard between row groups, by the stored bytes of the column; reads the footer.

        A shard whose footer or column is wrong gives ``None``: reading it says what is wrong.
        """
        try:
            with closing(file.open()) as raw:
                meta = self._open(raw, file).metadata
                column = self._column(meta, file)
        except (CorruptShardError, FieldError):
            return None
        pieces: list[Piece] = []
        start = total = 0
        for group in range(meta.num_row_groups):
            size = meta.row_group(group).column(column).total_compressed_size
            if group > start and total + size > max_bytes:
                pieces.append(Piece(Extent(start, group), total))
                start, total = group, 0
            total += size
        return [*pieces, Piece(Extent(start, meta.num_row_groups), total)]

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the rows of the extent's row groups from ``cursor`` on; see :class:`Format`."""
        with closing(file.open()) as raw:
            shard = self._open(raw, file)
            column = self._column(shard.metadata, file)
            groups = shard.metadata.num_row_groups
            skip = cursor.skip
            stop = groups if extent.stop < 0 else min(extent.stop, groups)
            for group in range(cursor.seek or extent.start, stop):
                rows = shard.metadata.row_group(group).num_rows
                if skip < rows:
                    for ahead in range(group, min(group + 2, stop)):
                        raw.expect(*_stored(shard.metadata.row_group(ahead).column(column)))
                    yield from self._rows(shard, file, group, column, skip)
                skip = max(0, skip - rows)

    def _rows(self, shard: Any, file: ShardFile, group: int, column: int, skip: int) -> Iterator[Chunk]:  # noqa: ANN401
        meta = shard.metadata.row_group(group)
        average = meta.column(column).total_uncompressed_size // meta.num_rows + 1
        size = max(1, min(_MOST_ROWS, _BATCH // average))
        row = 0
        batches = shard.iter_batches(size, row_groups=[group], columns=[self._field], use_threads=False)
        while (batch := _next(batches, file, group)) is not None:
            first = max(skip - row, 0)
            if first < batch.num_rows:
                for offset, array in _parts(self._array(batch).slice(first)):
                    yield _chunk(array, group, row + first + offset)
            row += batch.num_rows
        if row != meta.num_rows:
            cause = f"the row group has {row:,} rows, its footer says {meta.num_rows:,}"
            raise CorruptShardError(file.shard, f"row group {group}", cause, "write the shard again")

    def _array(self, batch: Any) -> Any:  # noqa: ANN401
        """Return the column's array; a column whose name has the dots wins over a struct's field."""
        names = batch.schema.names
        return innermost(batch.column(names.index(self._field) if self._field in names else 0))

    def _open(self, raw: RawFile, file: ShardFile) -> Any:  # noqa: ANN401
        try:
            return pq.ParquetFile(raw, buffer_size=_BUFFER, pre_buffer=False)
        except _BROKEN as error:
            cause = f"this is no Parquet file, or one without its end ({_first_line(error)})"
            raise CorruptShardError(file.shard, "footer", cause, "copy the shard again, or name its format") from error

    def _column(self, meta: Any, file: ShardFile) -> int:  # noqa: ANN401
        """Return the index of the leaf column that holds the text, after checking that it can."""
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
        return found[0]


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


def _next(batches: Any, file: ShardFile, group: int) -> Any:  # noqa: ANN401
    try:
        return next(batches, None)
    except _BROKEN as error:
        cause = f"the column is damaged or cut off ({_first_line(error)})"
        raise CorruptShardError(file.shard, f"row group {group}", cause, "copy the shard again") from error


def _parts(array: Any) -> Iterator[tuple[int, Any]]:  # noqa: ANN401
    """Cut ``array`` so that no part has many more than 4 MiB, unless it is one row."""
    rows = max(1, len(array) * _MOST_BYTES // max(array.nbytes, 1))
    for start in range(0, len(array), rows):
        yield start, array.slice(start, rows)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
