"""Parquet: column types, bytes read, memory, and damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.errors import CorruptShardError, FieldError, ReadError
from streamfeed.formats.arrow import texts_of
from streamfeed.formats.parquet import Parquet
from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Extent, Value
from streamfeed.storage.files import CountingFile, ShardFile
from tests.reading import until_corrupt

if TYPE_CHECKING:
    from pathlib import Path

START = Cursor()


def shard(path: Path, columns: dict[str, Any], **options: Any) -> ShardFile:
    pq.write_table(pa.table(columns), path, **options)
    return ShardFile(str(path), path.stat().st_size)


def values_of(file: ShardFile, field: str = "text", extent: Extent = WHOLE, cursor: Cursor = START) -> list[Value]:
    return [value for chunk in Parquet(field).read(file, extent, cursor) for value in chunk.values]


TEXTS = ["a", None, "", "é" * 40, "b", "b"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_every_type_of_text_column_gives_the_same_values(tmp_path: Path, kind: pa.DataType) -> None:
    assert values_of(shard(tmp_path / "s", {"text": pa.array(TEXTS).cast(kind)})) == TEXTS


def test_fixed_size_binary_json_and_null_columns_are_read(tmp_path: Path) -> None:
    assert values_of(shard(tmp_path / "f", {"text": pa.array([b"ab", None, b"cd"], pa.binary(2))})) == [
        "ab",
        None,
        "cd",
    ]
    assert values_of(shard(tmp_path / "n", {"text": pa.nulls(3)})) == [None] * 3
    assert values_of(shard(tmp_path / "j", {"text": pa.array(['{"a": 1}'], pa.json_())})) == ['{"a": 1}']


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_invalid_utf_8_is_a_bad_record_and_its_neighbours_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    data = pa.array([b"a", b"ok \xff" + b"x" * 20, None, "é".encode()])
    array = (
        data.cast(pa.binary_view()).view(kind)
        if kind == pa.string_view()
        else data.cast(pa.large_binary()).view(kind)
        if kind == pa.large_string()
        else data.view(kind)
    )
    values = values_of(shard(tmp_path / "s", {"text": array}, row_group_size=2))
    assert [value for value in values if not isinstance(value, Bad)] == ["a", None, "é"]
    bad = values[1]
    assert isinstance(bad, Bad)
    assert bad.where == "row group 0, row 1"
    assert "not valid UTF-8: invalid start byte at its byte 3" in bad.cause


def test_dotted_names_reach_into_structs_and_carry_their_nulls(tmp_path: Path) -> None:
    meta = [
        {"body": {"raw": "x", "n": 1}, "id": 1},
        None,
        {"body": None, "id": 2},
        {"body": {"raw": None, "n": 2}, "id": 3},
    ]
    file = shard(tmp_path / "s", {"id": range(4), "meta": meta})
    assert values_of(file, "meta.body.raw") == ["x", None, None, None]


def test_a_column_whose_name_has_the_dot_wins_over_a_struct(tmp_path: Path) -> None:
    columns = {"m": [{"text": "nested"}], "m.text": ["literal"]}
    assert values_of(shard(tmp_path / "a", columns), "m.text") == ["literal"]
    assert values_of(shard(tmp_path / "b", dict(reversed(columns.items()))), "m.text") == ["literal"]


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ([["a"], []], "holds lists, not text"),
        ([1, 2], "holds INT64 values, not text"),
        ([1.5, None], "holds DOUBLE values, not text"),
        ([True, None], "holds BOOLEAN values, not text"),
        ([{"a": "x"}, None], "holds structs, not text"),
        (pa.array([1, 2], pa.timestamp("s")), "holds TIMESTAMP values, not text"),
        (pa.array([[("a", "x")]], pa.map_(pa.string(), pa.string())), "holds lists, not text"),
    ],
)
def test_a_column_that_cannot_hold_text_is_a_field_error(tmp_path: Path, column: Any, cause: str) -> None:
    file = shard(tmp_path / "s", {"text": column})
    with pytest.raises(FieldError, match=cause):
        values_of(file)
    assert Parquet("text").split(file, 1) is None


def test_a_missing_column_lists_those_present(tmp_path: Path) -> None:
    file = shard(tmp_path / "s", {"id": [1], "meta": [{"body": "x"}]})
    with pytest.raises(FieldError, match=r"no column 'text'; columns present: id, meta\.body"):
        values_of(file)


def test_other_columns_of_any_type_are_not_read(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(1_000_000)
    file = shard(
        tmp_path / "s",
        {
            "blob": [noise, noise[::-1]],
            "text": ["a", "b"],
            "odd": pa.array([{"k": [1]}, None], pa.struct([("k", pa.list_(pa.int8()))])),
            "decimal": pa.array([1, 2], pa.decimal128(30, 3)),
            "time": pa.array([1, 2], pa.duration("ns")),
            "half": pa.array(np.array([1, 2], np.float16)),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        },
    )
    assert values_of(file) == ["a", "b"]
    assert file.stats.bytes < 100_000


def test_a_row_group_is_read_alone_column_alone_and_in_little_memory(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [draw.integers(97, 123, 5000, np.uint8).tobytes().decode() for _ in range(10_000)]
    path = tmp_path / "s"
    columns = {"text": texts, "other": [text[::-1] for text in texts]}
    file = shard(path, columns, row_group_size=9_000, use_dictionary=False, compression="none")
    chunk = pq.read_metadata(path).row_group(0).column(0).total_compressed_size
    del columns
    before = pa.total_allocated_bytes()
    rows = 0
    for part in Parquet("text").read(file, Extent(0, 1), START):
        assert part.values == texts[rows : rows + len(part.values)]
        rows += len(part.values)
        assert pa.total_allocated_bytes() - before < 16 << 20
    assert rows == 9_000
    assert chunk <= file.stats.bytes <= chunk + (1 << 17)


def test_a_dictionary_that_hides_large_rows_gives_bounded_chunks(tmp_path: Path) -> None:
    file = shard(tmp_path / "s", {"text": ["x" * 50_000] * 3000})
    sizes = [sum(len(str(value)) for value in chunk.values) for chunk in Parquet("text").read(file, WHOLE, START)]
    assert sum(sizes) == 150_000_000
    assert max(sizes) <= 4 << 20


def test_pieces_hold_the_bytes_of_the_column_at_most_what_was_asked(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [draw.integers(97, 123, 500, np.uint8).tobytes().decode() for _ in range(1000)]
    file = shard(
        tmp_path / "s", {"other": [text * 3 for text in texts], "text": texts}, row_group_size=100, compression="none"
    )
    pieces = Parquet("text").split(file, 120_000)
    assert pieces is not None
    assert [piece.extent for piece in pieces] == [Extent(i, i + 2) for i in range(0, 10, 2)]
    assert all(100_000 < piece.nbytes <= 120_000 for piece in pieces)


def test_a_truncated_shard_or_another_format_is_corrupt(tmp_path: Path) -> None:
    whole = shard(tmp_path / "s", {"text": TEXTS})
    data = (tmp_path / "s").read_bytes()
    for broken in (data[:-1], data[: len(data) // 2], b"", b'{"text": "x"}\n', data[:-8] + b"\xff\xff\xff\x7fPAR1"):
        (tmp_path / "t").write_bytes(broken)
        file = ShardFile(str(tmp_path / "t"), len(broken))
        with pytest.raises(CorruptShardError, match="footer: this is no Parquet file, or one without its end"):
            values_of(file)
        assert Parquet("text").split(file, 1) is None
    assert values_of(whole) == TEXTS


def test_damage_in_a_row_group_names_it_after_the_rows_before(tmp_path: Path) -> None:
    shard(tmp_path / "s", {"text": [f"text {i}" for i in range(100)]}, row_group_size=50, use_dictionary=False)
    data = bytearray((tmp_path / "s").read_bytes())
    start = pq.read_metadata(tmp_path / "s").row_group(1).column(0).data_page_offset
    data[start : start + 60] = b"\xff" * 60
    (tmp_path / "s").write_bytes(data)
    values, error = until_corrupt(Parquet("text").read(ShardFile(str(tmp_path / "s"), len(data)), WHOLE, START))
    assert values == [f"text {i}" for i in range(50)]
    assert error.where == "row group 1"
    assert "the column is damaged" in error.cause


def test_a_failed_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shard(tmp_path / "s", {"text": [str(i) * 100 for i in range(5000)]}, row_group_size=1000, compression="none")
    reads = 0
    original = CountingFile.read

    def failing(self: CountingFile, size: int = -1, /) -> bytes:
        nonlocal reads
        reads += 1
        if reads > 3:
            raise ReadError(file.shard, "byte 1", "the store is away")
        return original(self, size)

    monkeypatch.setattr(CountingFile, "read", failing)
    with pytest.raises(ReadError, match="the store is away"):
        values_of(file)
    reads = 3
    with pytest.raises(ReadError, match="the store is away"):
        values_of(file)


def test_values_in_arrows_memory_are_a_sequence_from_both_ends() -> None:
    values = texts_of(pa.array(["a", None, "", "é"]).slice(1), str)
    assert [values[index] for index in range(-3, 3)] == [None, "", "é"] * 2
    assert values[-2:] == ["", "é"]
    for index in (3, -4):
        with pytest.raises(IndexError):
            values[index]


def test_a_small_row_group_with_a_large_dictionary_leaves_nothing_of_its_reader(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [draw.integers(97, 123, 10_000, np.uint8).tobytes().decode() for _ in range(600)]
    file = shard(tmp_path / "s", {"text": texts}, row_group_size=600, compression="lz4")
    assert pq.read_metadata(tmp_path / "s").row_group(0).column(0).has_dictionary_page
    before = pa.total_allocated_bytes()
    chunks = Parquet("text").read(file, WHOLE, START)
    rows = 0
    for chunk in chunks:
        rows += len(chunk.values)
        left = sum(map(len, texts[rows - len(chunk.values) :]))
        assert pa.total_allocated_bytes() - before < left + (1 << 20)  # reading by steps: twice the dictionary more
    assert rows == 600


def test_damage_in_the_midst_of_a_small_row_group_comes_behind_the_rows_before_it(tmp_path: Path) -> None:
    texts = [f"text {i} " * 1000 for i in range(600)]
    options = {"use_dictionary": False, "compression": "lz4", "data_page_size": 100_000, "write_batch_size": 1}
    shard(tmp_path / "s", {"text": texts}, row_group_size=600, **options)
    data = bytearray((tmp_path / "s").read_bytes())
    column = pq.read_metadata(tmp_path / "s").row_group(0).column(0)
    place = column.data_page_offset + column.total_compressed_size // 2
    data[place : place + 600] = b"\xff" * 600
    (tmp_path / "s").write_bytes(data)
    values, error = until_corrupt(Parquet("text").read(ShardFile(str(tmp_path / "s"), len(data)), WHOLE, START))
    assert 0 < len(values) < 600
    assert values == texts[: len(values)]
    assert "row group 0" in error.where


def test_a_small_row_group_whose_dictionary_hides_much_is_not_read_at_once(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    few = [draw.integers(97, 123, 50_000, np.uint8).tobytes().decode() for _ in range(150)]
    file = shard(tmp_path / "s", {"text": [few[i % 150] for i in range(3000)]})
    before = pa.total_allocated_bytes()
    rows = most = 0
    for chunk in Parquet("text").read(file, WHOLE, START):
        rows += len(chunk.values)
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 3000
    assert most < 60 << 20  # of 150 MB
