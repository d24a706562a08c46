"""Parquet and Arrow shards of several columns, and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Cursor, Extent
from streamfeed.formats.shape import Field, Shape
from streamfeed.storage.files import ShardFile
from tests.arrow_shards import MAKERS
from tests.reading import values_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 40
TEXT = Field("text", "text", "text")
LABEL = Field("label", "label", "label")
MESSAGES = Field("messages", "messages", "messages")
CONVERSATION = [{"role": "user", "content": "é"}, {"role": "assistant", "content": "b"}]

WRITERS: dict[str, Callable[[Path, Any], object]] = {
    "parquet": lambda path, table: pq.write_table(table, path, row_group_size=11),
    "arrow": lambda path, table: arrow(path, table, "file"),
    "arrows": lambda path, table: arrow(path, table, "stream"),
}


def arrow(path: Path, table: Any, form: str = "file", **options: Any) -> None:
    with MAKERS[form](path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=11)


def file_of(path: Path) -> ShardFile:
    return ShardFile(str(path), path.stat().st_size)


def records_in(file: ShardFile, *fields: Field, extent: Extent = WHOLE, **settings: Any) -> list[Any]:
    kind = "parquet" if file.url.endswith("parquet") else "arrow"
    values = values_in(make_format(kind, Shape(fields=fields, **settings)).read(file, extent, Cursor()))
    return [orjson.loads(value) if isinstance(value, str) else value for value in values]


def shard(folder: Path, kind: str, **columns: Any) -> ShardFile:
    path = folder / f"s.{kind}"
    WRITERS[kind](path, pa.table(columns))
    return file_of(path)
