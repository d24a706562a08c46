"""No byte of a Parquet footer, whatever it is changed to, ends the process that reads it."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats.parquet import Parquet, row_groups
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.formats.shape import Field, Shape
from streamfeed.storage.files import ShardFile
from tests.reading import until_corrupt, values_in

SHAPES = {
    "text": Shape("text"),
    "record": Shape(fields=(Field("text", "text", "text"), Field("tags", "tags", "any"), Field("meta", "meta", "any"))),
    "whole": Shape(whole=True),
}
FLIPS = (0x01, 0x04, 0x80)


def shard(path: Path) -> bytes:
    columns = {"text": [f"text {i}" for i in range(4)], "tags": [["x", "y"]] * 4, "meta": [{"a": 1, "b": "c"}] * 4}
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path.read_bytes()


def footer_of(data: bytes) -> range:
    """Return where the footer is, with its size and the magic behind it."""
    return range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data))


def ended(path: str, shape: str) -> None:
    """Read the shard with every byte of its footer flipped; the process ends with 0 where all that was survived."""
    data = Path(path).read_bytes()
    found: Counter[str] = Counter()
    for at in footer_of(data):
        for flip in FLIPS:
            changed = bytearray(data)
            changed[at] ^= flip
            Path(path).write_bytes(changed)
            found[_read(ShardFile(path, len(data)), SHAPES[shape])] += 1
    assert found["contradicts"] >= 2, found
    assert found["fine"] >= 10, found


def _read(file: ShardFile, shape: Shape) -> str:
    try:
        Parquet(shape).split(file, 1)
        row_groups(file)
        values_in(Parquet(shape).read(file, WHOLE, Cursor()))
    except CorruptShardError as error:
        return "contradicts" if "the footer contradicts itself" in str(error) else "corrupt"
    except FieldError:
        return "no such field"
    return "fine"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_flipped_byte_of_the_footer_is_an_error_and_never_the_end_of_the_process(shape: str, tmp_path: Path) -> None:
    shard(tmp_path / "a.parquet")
    child = get_context("spawn").Process(target=ended, args=(str(tmp_path / "a.parquet"), shape))
    child.start()
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_group_whose_sizes_contradict_the_schema_comes_behind_those_before_it_and_names_the_shard(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard(tmp_path / "a.parquet")
    file = ShardFile(str(tmp_path / "a.parquet"), (tmp_path / "a.parquet").stat().st_size)
    reads: list[int] = []
    begin = pq.ParquetFile.iter_batches

    def broken(self: Any, size: int, *, row_groups: list[int], **options: Any) -> Any:
        reads.append(row_groups[0])
        if row_groups == [1]:
            raise OSError("Definition level histogram size mismatch, size: 2, expected: 1")
        return begin(self, size, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", broken)
    chunks: Any = Parquet(SHAPES[shape]).read(file, WHOLE, Cursor())
    values, error = until_corrupt(chunks)
    assert len(values) == 2
    assert (error.shard, error.where) == (file.shard, "row group 1")
    assert "the footer contradicts itself (Definition level histogram" in error.cause
    assert Parquet(SHAPES[shape]).split(file, 1) is None


def test_trying_a_footer_reads_no_byte_of_the_data(tmp_path: Path) -> None:
    size = len(shard(tmp_path / "a.parquet"))
    opened, cut = (ShardFile(str(tmp_path / "a.parquet"), size) for _ in range(2))
    with closing(opened.open()) as raw:
        assert pq.ParquetFile(raw, pre_buffer=False).metadata.num_row_groups == 2
    pieces = Parquet(Shape("text")).split(cut, 1)
    assert pieces is not None
    assert len(pieces) == 2
    assert (cut.stats.reads, cut.stats.bytes) == (opened.stats.reads, opened.stats.bytes)
