"""What is read over a network: the projected column's own chunks, and of lines and archives the extent."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Cursor, Extent
from streamfeed.formats.shape import Shape
from streamfeed.storage.store import Store
from tests.reading import values_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfeed.storage.files import ShardFile

ROWS = 4000


@pytest.fixture
def texts() -> list[str]:
    draw = random.Random(0)
    return [draw.randbytes(500).hex() for _ in range(ROWS)]


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


def stored(data: bytes, name: str) -> ShardFile:
    fsspec.filesystem("memory").pipe_file(f"/p/{name}", data)
    store = Store()
    listing = store.list([f"memory://p/{name}"])
    return store.file(listing.urls[0], listing.sizes[0], listing.versions[0])


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_of_parquet_only_the_column_s_own_chunks_are_fetched(tmp_path: Path, texts: list[str], name: str) -> None:
    draw = random.Random(1)
    unused = [draw.randbytes(5000) for _ in range(ROWS)]
    columns = {name: unused, "text": texts}  # on either side of the text
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(dict(sorted(columns.items()))), path, row_group_size=ROWS // 5, compression="NONE")
    meta = pq.read_metadata(path)
    at = sorted(columns).index("text")
    own = sum(meta.row_group(group).column(at).total_compressed_size for group in range(5))
    file = stored(path.read_bytes(), "x.parquet")
    assert values_in(make_format("parquet", Shape("text")).read(file, WHOLE, Cursor())) == texts
    assert file.size > 5 * own
    assert own <= file.stats.bytes <= 1.05 * own
    before = file.stats.bytes
    some = values_in(make_format("parquet", Shape("text")).read(file, Extent(1, 3), Cursor()))
    assert some == texts[ROWS // 5 : 3 * ROWS // 5]
    assert file.stats.bytes - before <= 1.05 * own * 2 / 5 + 65536


@pytest.mark.parametrize("start", [0, 1])
def test_of_lines_an_extent_and_the_end_of_its_last_line_are_fetched(texts: list[str], start: int) -> None:
    data = "".join(f'{{"text": "{text}"}}\n' for text in texts).encode()
    file = stored(data, "x.jsonl")
    form = make_format("jsonl", Shape("text"))
    half = len(data) // 2
    extents = [Extent(0, half), Extent(half, len(data))]
    values = values_in(form.read(file, extents[start], Cursor()))
    assert values == (texts[: len(values)] if start == 0 else texts[-len(values) :])
    assert file.stats.bytes <= half + 2 * 65536
