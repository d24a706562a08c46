"""Records of Parquet's and Arrow's columns: their types, and the bytes that are read."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING, Any

import datasets
import fsspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.errors import FieldError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Bad, Cursor
from streamfeed.formats.shape import Field, Shape
from streamfeed.storage.store import Store
from tests.arrow_shards import CODECS, MAKERS
from tests.record_shards import CONVERSATION, LABEL, MESSAGES, ROWS, TEXT, WRITERS, arrow, file_of, records_in, shard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 2, None, 1], pa.int8()),
        pa.array([0, 2, None, 1], pa.uint64()),
        pa.array([0, 2, None, 1], pa.int64()).dictionary_encode(),
        pa.array(["0", "2", None, "1"]),
        pa.array(["0", "2", None, "1"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_labels_are_read_from_columns_of_every_type(tmp_path: Path, kind: str, column: Any) -> None:
    file = shard(tmp_path, kind, label=column)
    assert records_in(file, LABEL, classes=3) == [{"label": 0}, {"label": 2}, None, {"label": 1}]


@pytest.mark.parametrize("kind", WRITERS)
def test_labels_by_name_and_booleans_are_read(tmp_path: Path, kind: str) -> None:
    column = pa.array(["no", "yes", None] * 10)
    wanted = [{"label": 0}, {"label": 1}, None] * 10
    for array in (column, column.cast(pa.large_string()), column.cast(pa.binary()), column.dictionary_encode()):
        assert records_in(shard(tmp_path, kind, label=array), LABEL, labels=("no", "yes")) == wanted
    booleans = pa.array([False, True, None] * 10)
    assert records_in(shard(tmp_path, kind, label=booleans), LABEL, classes=2) == wanted
    assert records_in(shard(tmp_path, kind, label=pa.nulls(3)), LABEL, classes=2) == [None] * 3


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("field", "column", "cause"),
    [
        (LABEL, [1.0], "column 'label' holds double values, not labels"),
        (LABEL, [[1]], "column 'label' holds list<.*> values, not labels"),
        (TEXT._replace(name="label"), [1], "column 'label' holds int64 values, not text"),
        (MESSAGES._replace(name="label"), [["a"]], "column 'label' holds list<.*> values, not lists of messages"),
        (LABEL._replace(name="label.x"), [{"y": 1}], "no column 'label.x'; fields present in 'label': y"),
    ],
)
def test_a_column_that_cannot_hold_the_field_is_a_field_error(
    tmp_path: Path, kind: str, field: Field, column: Any, cause: str
) -> None:
    file = shard(tmp_path, kind, label=column)
    with pytest.raises(FieldError, match=cause):
        records_in(file, field, classes=3)
    form = make_format("parquet" if kind == "parquet" else "arrow", Shape(fields=(field,), classes=3))
    assert form.split(file, 1) is None


MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())])


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    "column_type",
    [
        pa.list_(MESSAGE),
        pa.large_list(MESSAGE),
        pa.list_(MESSAGE, 2),
        pa.list_(pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", pa.large_string())])),
        pa.json_(),
    ],
    ids=lambda one: str(one)[:30],
)
def test_messages_are_read_from_columns_of_every_type(tmp_path: Path, kind: str, column_type: Any) -> None:
    rows: list[Any] = [CONVERSATION if i % 3 else None for i in range(ROWS)]
    if column_type == pa.json_():
        column: Any = pa.array([None if row is None else orjson.dumps(row).decode() for row in rows], column_type)
    elif "dictionary" in str(column_type):
        plain = pa.list_(pa.struct([("role", pa.string()), ("content", pa.large_string())]))
        flat = pa.array(rows, plain)
        roles = flat.values.field("role").dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
        inner = pa.StructArray.from_arrays([roles, flat.values.field("content")], ["role", "content"])
        column = pa.ListArray.from_arrays(flat.offsets, inner, mask=flat.is_null())
    else:
        column = pa.array(rows, column_type)
    file = shard(tmp_path, kind, before=[{"x": [1]}] * ROWS, messages=column, behind=pa.nulls(ROWS))
    assert records_in(file, MESSAGES) == [{"messages": row} if row else None for row in rows]


@pytest.mark.parametrize("kind", WRITERS)
def test_anything_that_json_can_say_is_read_and_anything_else_is_a_bad_record(tmp_path: Path, kind: str) -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    columns: dict[str, tuple[Any, object]] = {
        "double": (pa.array([1.5]), 1.5),
        "nan": (pa.array([float("nan")]), None),
        "day": (pa.array([moment.date()]), "2020-01-02"),
        "moment": (pa.array([moment], pa.timestamp("ns", "UTC")), "2020-01-02T03:04:05+00:00"),
        "list": (pa.array([[[1], None]]), [[1], None]),
        "map": (pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int8())), {"a": 1, "b": None}),
        "large": (pa.array(["é"], pa.large_string()), "é"),
        "view": (pa.array(["more than twelve bytes"], pa.string_view()), "more than twelve bytes"),
        "empty": (pa.array([{}], pa.struct([])), {}) if kind != "parquet" else (pa.array([1]), 1),
        "half": (pa.array(np.array([0.5], np.float16)), 0.5),
    }
    file = shard(tmp_path, kind, **{name: array for name, (array, _) in columns.items()})
    for name, (_, wanted) in columns.items():
        assert records_in(file, Field("x", name, "any")) == [{"x": wanted}], name
    fields = [Field(name, name, "any") for name in reversed(columns)]
    assert records_in(file, *fields) == [{name: wanted for name, (_, wanted) in reversed(columns.items())}]
    bytes_and_more = {"bytes": pa.array([b"\xff"]), "span": pa.array([1], pa.duration("s"))}
    file = shard(tmp_path, kind, **bytes_and_more, list=pa.array([[b"a"]]))
    for name in (*bytes_and_more, "list"):
        (value,) = records_in(file, Field("x", name, "any"))
        assert isinstance(value, Bad)
        assert f"field '{name}' holds what JSON cannot say: a value of type " in value.cause


@pytest.mark.parametrize("kind", WRITERS)
def test_invalid_utf_8_is_a_bad_record_and_its_neighbours_are_read(tmp_path: Path, kind: str) -> None:
    data = pa.array([b"a", b"ok \xff", b"c"] * 10)
    texts = data.view(pa.string())
    inner = pa.StructArray.from_arrays([pa.array(["user"] * 30), texts], ["role", "content"])
    messages = pa.ListArray.from_arrays(pa.array(range(31), pa.int32()), inner)
    file = shard(tmp_path, kind, text=texts, messages=messages, map=data)
    for fields in ((TEXT,), (MESSAGES,), (TEXT, MESSAGES), (Field("x", "text", "any"),)):
        values = records_in(file, *fields)
        assert [isinstance(value, Bad) for value in values] == [False, True, False] * 10
        assert "not valid UTF-8" in values[1].cause
        assert values[1].where.endswith(", row 1")
        assert values[13].where.endswith(", row 2")  # the second group or batch has rows 11 to 21
        assert all(key.key in values[0] for key in fields)


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_and_dictionaries_that_grow_are_read(tmp_path: Path, form: str, codec: str | None) -> None:
    path = tmp_path / "s.arrow"
    kind = pa.dictionary(pa.int32(), pa.string())
    words = [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
    batches = [
        pa.record_batch(
            {
                "unused": pa.DictionaryArray.from_arrays([0], [str(i)]),
                "text": [f"text {i} " * 50],
                "label": pa.DictionaryArray.from_arrays(pa.array([len(one) - 1], pa.int32()), one).cast(kind),
                "messages": [CONVERSATION],
            }
        )
        for i, one in enumerate(words)
    ]
    deltas = {"emit_dictionary_deltas": True} if form == "file" else {}
    if form == "file":  # a file's dictionaries may grow and not be replaced
        batches = [batch.drop_columns(["unused"]) for batch in batches]
    options = pa.ipc.IpcWriteOptions(compression=codec, **deltas)
    with MAKERS[form](path, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    found = records_in(file_of(path), LABEL, MESSAGES, TEXT, labels=("a", "b", "c"))
    assert found == [
        {"label": label, "messages": CONVERSATION, "text": f"text {i} " * 50} for i, label in enumerate((1, 2, 2))
    ]


def test_of_parquet_only_the_projected_bytes_are_read_and_split(tmp_path: Path) -> None:
    draw = random.Random(0)
    texts = [draw.randbytes(200).hex() for _ in range(4000)]
    columns = {
        "a": [draw.randbytes(5000) for _ in range(4000)],
        "text": texts,
        "b": [[{"x": one.hex()}] for one in (draw.randbytes(500) for _ in range(4000))],
        "messages": [[{"role": "user", "content": text[::-1]}] for text in texts],
        "label": [i % 3 for i in range(4000)],
    }
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1000, compression="NONE", use_dictionary=False)
    meta = pq.read_metadata(path)
    own = [
        sum(
            one.total_compressed_size
            for one in (meta.row_group(group).column(i) for i in range(meta.num_columns))
            if one.path_in_schema.partition(".")[0] in {"text", "messages", "label"}
        )
        for group in range(4)
    ]
    file = file_of(path)
    found = records_in(file, LABEL, TEXT, MESSAGES, classes=3)
    assert found == [
        {"label": i % 3, "text": text, "messages": [{"role": "user", "content": text[::-1]}]}
        for i, text in enumerate(texts)
    ]
    assert file.size > 5 * sum(own)
    assert sum(own) <= file.stats.bytes <= 1.05 * sum(own) + 65536
    shape = Shape(fields=(LABEL, TEXT, MESSAGES), classes=3)
    pieces = make_format("parquet", shape).split(file, 2 * max(own))
    assert pieces is not None
    assert [piece.nbytes for piece in pieces] == [own[0] + own[1], own[2] + own[3]]


@pytest.mark.parametrize("form", ["file", "stream"])
def test_of_arrow_only_the_projected_buffers_are_read(tmp_path: Path, form: str) -> None:
    draw = random.Random(0)
    texts = [draw.randbytes(200).hex() for _ in range(2000)]
    noise = [draw.randbytes(10_000) for _ in range(2000)]
    path = tmp_path / "s.arrow"
    table = pa.table({"a": noise, "text": texts, "b": noise[::-1], "label": [i % 2 for i in range(2000)]})
    with MAKERS[form](path, table.schema) as writer:
        writer.write_table(table, max_chunksize=500)
    file = file_of(path)
    assert records_in(file, LABEL, TEXT, classes=2) == [{"label": i % 2, "text": one} for i, one in enumerate(texts)]
    assert file.stats.bytes < 2 * sum(map(len, texts)) < file.size / 5


def test_a_dictionary_that_hides_large_rows_gives_bounded_chunks(tmp_path: Path) -> None:
    path = tmp_path / "s.arrow"
    table = pa.table({"text": pa.array(["x" * 50_000] * 2500).dictionary_encode(), "label": [0] * 2500})
    arrow(path, table)
    for kind, file in (("arrow", file_of(path)), ("parquet", shard(tmp_path, "parquet", text=table["text"]))):
        shape = Shape(fields=(TEXT,)) if kind == "parquet" else Shape(fields=(TEXT, LABEL), classes=2)
        chunks = make_format(kind, shape).read(file, WHOLE, Cursor())
        sizes = [sum(len(str(value)) for value in chunk.values) for chunk in chunks]
        assert sum(sizes) > 2500 * 50_000
        assert max(sizes) <= 2 << 20


def test_a_saved_folder_of_datasets_gives_its_class_labels_and_conversations(tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "messages": [{"role": datasets.Value("string"), "content": datasets.Value("string")}],
        }
    )
    rows = [{"text": f"text {i}", "label": i % 2, "messages": CONVERSATION} for i in range(30)]
    datasets.Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "saved")
    (path,) = (tmp_path / "saved").glob("*.arrow")
    assert records_in(file_of(path), TEXT, LABEL, MESSAGES, classes=2) == rows


def test_columns_read_by_turns_from_a_store_are_fetched_once(tmp_path: Path) -> None:
    draw = random.Random(0)
    texts = [draw.randbytes(600).hex() for _ in range(4000)]
    path = tmp_path / "s.parquet"
    columns = {"a": texts, "noise": [draw.randbytes(2000) for _ in texts], "b": [text[::-1] for text in texts]}
    pq.write_table(pa.table(columns), path, row_group_size=2000, compression="NONE", use_dictionary=False)
    system = fsspec.filesystem("memory")
    system.pipe_file("/records/s.parquet", path.read_bytes())
    try:
        store = Store()
        listing = store.list(["memory://records/s.parquet"])
        file = store.file(listing.urls[0], listing.sizes[0], listing.versions[0])
        found = records_in(file, Field("b", "b", "text"), Field("a", "a", "text"))
    finally:
        system.rm("/records", recursive=True)
    assert found == [{"b": text[::-1], "a": text} for text in texts]
    own = 2 * sum(map(len, texts))
    assert own <= file.stats.bytes <= 1.05 * own
