"""A shard of Parquet: one schema for its records, row groups of about 32 MiB."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamfeed.convert.counts import count
from streamfeed.convert.rows import json_rows
from streamfeed.convert.schema import MixedTypesError, array_of, unified
from streamfeed.convert.writers import Written
from streamfeed.errors import RecordError
from streamfeed.storage.files import ShardFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfeed.convert.forms import Origin, Shown
    from streamfeed.convert.rows import Rows

__all__ = ["ParquetShardWriter"]

GROUP_BYTES = 32 << 20
"""Bytes of records in a row group, about: a reader that is resumed in the middle of one decodes half of it in vain."""

HELD_BYTES = 256 << 20
"""Tables of more bytes than this wait on the disk until the schema is known."""

_LEVEL = 1  # of web texts 3 saves 5 % of the bytes, for twice the time

_ADVICE = "convert to jsonl.zst or tar, which take any record, or mend it"
_TOGETHER = 2 << 20  # bytes of records that are made a table at a time


class ParquetShardWriter:
    """Holds a shard's records until all of their types are known, then writes them; zstd, with check sums of pages."""

    def __init__(self, path: Path, shown: Shown, group_rows: int) -> None:
        self._path = path
        self._shown = shown
        self._group_rows = group_rows
        self._waiting: list[tuple[Rows, Origin]] = []
        self._waiting_bytes = 0
        self._held: list[Any] = []
        self._size = 0
        self._spilled: list[Path] = []
        self._schema: Any = None
        self._rows = 0
        self._origin: Origin | None = None

    def add(self, rows: Rows, origin: Origin) -> None:
        """Take the next rows."""
        self._origin = self._origin or origin
        self._waiting.append((rows, origin))
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _TOGETHER:
            self._take_all()

    def _take_all(self) -> None:
        """Make a table of what waits: of all JSON texts at once, which is faster, unless one of them is bad."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if len(waiting) > 1 and all(rows.form == "json" for rows, _ in waiting):
            try:
                self._take(json_rows([text for rows, _ in waiting for text in rows.texts]), waiting[0][1])
            except RecordError:
                pass  # told below with its own place
            else:
                return
        for rows, origin in waiting:
            self._take(rows, origin)

    def _take(self, rows: Rows, origin: Origin) -> None:
        table = self._shown.table(rows, origin)
        try:
            self._schema = table.schema if self._schema is None else _common(self._schema, table.schema)
        except MixedTypesError as error:
            origin.fail(0, str(error), _ADVICE)
        self._held.append(table)
        self._size += table.nbytes
        self._rows += table.num_rows
        if self._size > HELD_BYTES:
            self._spill()

    def _spill(self) -> None:
        for table in self._held:
            path = self._path.with_name(f"{self._path.name}.{len(self._spilled)}.arrow")
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            self._spilled.append(path)
        self._held, self._size = [], 0

    def close(self) -> Written:
        """Write the file."""
        self._take_all()
        try:
            return self._written(pa.schema([]) if self._schema is None else self._schema)
        except MixedTypesError as error:
            assert self._origin is not None
            self._origin.fail(0, f"{error} (in the {self._rows:,} records from there on)", _ADVICE)

    def _written(self, schema: Any) -> Written:  # noqa: ANN401
        with pq.ParquetWriter(
            self._path, schema, compression="zstd", compression_level=_LEVEL, write_page_checksum=True
        ) as writer:
            for group in self._groups(schema):
                writer.write_table(group, row_group_size=self._group_rows)
        self.abandon()
        return Written(count(ShardFile(str(self._path), self._path.stat().st_size), "parquet"))

    def _groups(self, schema: Any) -> Iterator[Any]:  # noqa: ANN401
        """Yield tables of a row group each, every column in one piece: how it was cut would show in its pages."""
        waiting: list[Any] = []
        rows = 0
        for table in self._tables():
            fitted = _fitted(table, schema)
            while rows + fitted.num_rows >= self._group_rows:
                taken = self._group_rows - rows
                yield pa.concat_tables([*waiting, fitted.slice(0, taken)]).combine_chunks()
                fitted, waiting, rows = fitted.slice(taken), [], 0
            if fitted.num_rows:
                waiting.append(fitted)
                rows += fitted.num_rows
        if waiting:
            yield pa.concat_tables(waiting).combine_chunks()

    def _tables(self) -> Iterator[Any]:
        for path in self._spilled:
            with pa.memory_map(str(path)) as file:
                yield pa.ipc.open_file(file).read_all()
        yield from self._held

    def abandon(self) -> None:
        """Remove what waits on the disk."""
        for path in self._spilled:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        self._held, self._spilled, self._waiting = [], [], []


def _common(left: Any, right: Any) -> Any:  # noqa: ANN401
    """Return the schema that holds the rows of both; what is said of columns is kept where both say it."""
    if left.equals(right, check_metadata=True):
        return left
    fields = {field.name: field for field in left}
    for field in right:
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = field.with_nullable(True)
        elif not known.equals(field, check_metadata=True):
            fields[field.name] = pa.field(field.name, unified(known.type, field.type, field.name))
    names = set(right.names)
    kept = [field if field.name in names else field.with_nullable(True) for field in fields.values()]
    return pa.schema(kept, left.metadata if left.metadata == right.metadata else None)


def _fitted(table: Any, schema: Any) -> Any:  # noqa: ANN401
    """Return a table with the columns of ``schema``, which holds all of its values."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = [
        _widened(table.column(field.name), field.type, field.name)
        if field.name in table.schema.names
        else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _widened(column: Any, kind: Any, name: str) -> Any:  # noqa: ANN401
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException:  # structs that gained a field
        return pa.chunked_array([array_of(column.to_pylist(), pa.field(name, kind))], kind)
