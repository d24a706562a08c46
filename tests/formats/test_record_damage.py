"""Damaged shards whose records are read by several columns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.formats.shape import Shape
from tests.reading import until_corrupt, values_in
from tests.record_shards import CONVERSATION, LABEL, MESSAGES, ROWS, TEXT, file_of, shard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["arrow", "arrows"])
def test_damage_of_a_column_names_its_batch_after_the_rows_before(tmp_path: Path, kind: str) -> None:
    file = shard(tmp_path, kind, text=[f"text {i}" for i in range(ROWS)], label=[i % 2 for i in range(ROWS)])
    data = bytearray((tmp_path / f"s.{kind}").read_bytes())
    reader = make_format("arrow", Shape(fields=(LABEL, TEXT), classes=2))
    pieces = reader.split(file, 1)
    assert pieces is not None
    # the offsets of the second batch's texts
    wanted = np.cumsum([0, *(len(f"text {i}") for i in range(11, 22))]).astype("<i4").tobytes()
    at = data.index(wanted)
    data[at + 4 : at + 48] = np.full(11, -5, "<i4").tobytes()
    path = tmp_path / f"t.{kind}"
    path.write_bytes(data)
    values, error = until_corrupt(reader.read(file_of(path), WHOLE, Cursor()))
    assert [orjson.loads(str(value))["text"] for value in values] == [f"text {i}" for i in range(11)]
    assert "the column is damaged" in error.cause
    assert error.where.startswith("byte ")


@pytest.mark.parametrize("kind", ["arrow", "arrows"])
def test_no_damaged_byte_of_an_arrow_shard_ends_in_anything_but_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    column = pa.array(["no", "yes", None] * 8).dictionary_encode()
    shard(tmp_path, kind, text=["a", "é", None] * 8, label=column, messages=[CONVERSATION] * 24)
    data = (tmp_path / f"s.{kind}").read_bytes()
    reader = make_format("arrow", Shape(fields=(LABEL, TEXT, MESSAGES), labels=("no", "yes")))
    draw = random.Random(0)
    path = tmp_path / f"t.{kind}"
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(draw.choice([1, 1, 4])):
            broken[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(broken)
        reader.split(file_of(path), 100)
        try:
            values_in(reader.read(file_of(path), WHOLE, Cursor()))
        except (CorruptShardError, FieldError):
            continue


def test_damage_in_a_row_group_names_it_after_the_rows_before(tmp_path: Path) -> None:
    table = pa.table({"text": [f"text {i}" for i in range(100)], "label": [i % 2 for i in range(100)]})
    path = tmp_path / "s.parquet"
    pq.write_table(table, path, row_group_size=50, use_dictionary=False)
    data = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(1).data_page_offset
    data[start : start + 60] = b"\xff" * 60
    path.write_bytes(data)
    form = make_format("parquet", Shape(fields=(TEXT, LABEL), classes=2))
    values, error = until_corrupt(form.read(file_of(path), WHOLE, Cursor()))
    assert len(values) == 50
    assert error.where == "row group 1"
