"""Arrow shards, and their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfeed.formats.arrow_ipc import ArrowIpc
from streamfeed.formats.protocol import WHOLE, Cursor, Extent, Value
from streamfeed.storage.files import ShardFile
from tests.reading import values_in

if TYPE_CHECKING:
    from pathlib import Path

START = Cursor()
TEXTS = ["a", None, "", "Zürich 漢字 🙂", "more than twelve bytes", "x" * 300] * 5
CODECS = [None, "lz4", "zstd"]
MAKERS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def shard(
    path: Path, columns: dict[str, Any], form: str = "file", *, rows: int = 7, codec: str | None = None
) -> ShardFile:
    table = pa.table(columns)
    with MAKERS[form](path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return ShardFile(str(path), path.stat().st_size)


def values_of(file: ShardFile, field: str = "text", extent: Extent = WHOLE, cursor: Cursor = START) -> list[Value]:
    return values_in(ArrowIpc(field).read(file, extent, cursor))
