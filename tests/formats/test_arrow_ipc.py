"""Arrow IPC files and streams: every text type, and what is read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import FieldError
from streamfeed.formats.arrow_ipc import ArrowIpc
from streamfeed.formats.protocol import WHOLE, Bad, Cursor
from streamfeed.storage.files import ShardFile
from tests.arrow_shards import CODECS, MAKERS, TEXTS, shard, values_of
from tests.reading import values_in

if TYPE_CHECKING:
    from pathlib import Path

START = Cursor()
TYPES = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_string()),
    pa.dictionary(pa.int16(), pa.string_view()),
]


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_of_text_is_read_under_every_compression(
    tmp_path: Path, form: str, codec: str | None, kind: Any
) -> None:
    if pa.types.is_dictionary(kind):
        column = pa.DictionaryArray.from_arrays(
            pa.array([0, None, 1, 2, 3, 4] * 5, kind.index_type),
            pa.array(["a", "", *TEXTS[3:6]], pa.string()).cast(kind.value_type),
        )
    else:
        column = pa.array(TEXTS, pa.string()).cast(kind)
    file = shard(tmp_path / "s", {"id": list(range(30)), "text": column}, form, codec=codec)
    assert values_of(file) == TEXTS
    for chunk in list(ArrowIpc("text").read(file, WHOLE, START)):
        for i in range(len(chunk.values)):
            done = 7 * chunk.seek + chunk.skip + i if form == "file" else None
            tail = values_of(file, cursor=Cursor(chunk.seek, chunk.skip + i))
            assert tail == TEXTS[len(TEXTS) - len(tail) :]
            assert done is None or len(tail) == len(TEXTS) - done


@pytest.mark.parametrize("form", MAKERS)
def test_fixed_sizes_and_nulls_are_read(tmp_path: Path, form: str) -> None:
    file = shard(tmp_path / "s", {"text": pa.array([b"abc", None, b"d\xc3\xa9"], pa.binary(3))}, form)
    assert values_of(file) == ["abc", None, "dé"]
    assert values_of(shard(tmp_path / "n", {"text": pa.nulls(9)}, form)) == [None] * 9


OTHERS: dict[str, Any] = {
    "null": pa.nulls(3),
    "bool": [True, None, False],
    "int": [1, 2, None],
    "decimal": pa.array([1, 2, 3], pa.decimal128(30, 3)),
    "list": pa.array([["a"], [], None], pa.list_(pa.string())),
    "large_list": pa.array([["a"], [], None], pa.large_list(pa.string_view())),
    "list_view": pa.array([["a"], [], None], pa.list_view(pa.string())),
    "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"a": {"b": "x"}, "c": 1}, None, {}]),
    "view": pa.array(["a long text in a view", "b", None], pa.string_view()),
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "sparse": pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(list("abc"))]),
    "dense": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"])),
    "uuid": pa.array([b"0" * 16, None, b"1" * 16], pa.uuid()),
    "time": pa.array([1, 2, 3], pa.duration("s")),
}


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["string", "string_view"])
def test_columns_of_any_type_around_it_are_passed_over(tmp_path: Path, form: str, codec: str | None, kind: str) -> None:
    texts = ["first", None, "third, longer than a view holds"]
    text = pa.array(texts, pa.string()).cast(getattr(pa, kind)())
    file = shard(
        tmp_path / "s", {**OTHERS, "text": text, **{f"{k} 2": v for k, v in OTHERS.items()}}, form, codec=codec
    )
    assert values_of(file) == texts
    for name, other in OTHERS.items():
        some = shard(tmp_path / "one", {name: other, "text": text}, form, rows=2, codec=codec)
        assert values_of(some) == texts, name


@pytest.mark.parametrize("form", MAKERS)
def test_dots_reach_into_structs_and_nulls_above_are_null(tmp_path: Path, form: str) -> None:
    meta = pa.array(
        [{"id": 1, "body": {"text": "a"}}, None, {"id": 2, "body": None}, {"id": 3, "body": {"text": None}}],
        pa.struct([("id", pa.int64()), ("body", pa.struct([("text", pa.string())]))]),
    )
    file = shard(tmp_path / "s", {"x": [1, 2, 3, 4], "meta": meta, "meta.id": list("wxyz")}, form, rows=3)
    assert values_of(file, "meta.body.text") == ["a", None, None, None]
    assert values_of(file, "meta.id") == list("wxyz")


def test_a_struct_of_a_sliced_table_keeps_its_rows(tmp_path: Path) -> None:
    table = pa.table({"meta": [{"text": f"t{i}"} if i % 3 else None for i in range(40)]}).slice(11, 20)
    with pa.ipc.new_stream(tmp_path / "s", table.schema) as writer:
        writer.write_table(table)
    file = ShardFile(str(tmp_path / "s"), (tmp_path / "s").stat().st_size)
    assert values_of(file, "meta.text") == [f"t{i}" if i % 3 else None for i in range(11, 31)]


@pytest.mark.parametrize("form", MAKERS)
def test_dictionaries_that_grow_or_change_are_followed_from_any_cursor(tmp_path: Path, form: str) -> None:
    batches = [
        pa.record_batch({"id": pa.array(["q", "r"]).dictionary_encode(), "text": pa.array(some).dictionary_encode()})
        for some in (["a", "b"], ["b", "a"], ["a", "b"])
    ]
    grown = pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int32()), pa.array(["a", "b", "c"]))
    batches.append(pa.record_batch({"id": batches[0].column(0), "text": grown}))
    if form == "file":  # a file cannot hold a dictionary that is replaced
        batches = [batches[0], batches[2], batches[3]]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with MAKERS[form](tmp_path / "s", batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    wanted = [text for batch in batches for text in batch.column(1).to_pylist()]
    file = ShardFile(str(tmp_path / "s"), (tmp_path / "s").stat().st_size)
    chunks = list(ArrowIpc("text").read(file, WHOLE, START))
    assert values_in(chunks) == wanted
    for i, chunk in enumerate(chunks):
        assert values_of(file, cursor=Cursor(chunk.seek)) == wanted[2 * i :]
    assert values_of(file, "id") == ["q", "r"] * len(batches)


@pytest.mark.parametrize("form", MAKERS)
def test_invalid_utf8_is_a_bad_record_and_its_neighbours_are_read(tmp_path: Path, form: str) -> None:
    data = pa.array([b"a", b"\xff\xfe", None, b"b"])
    for column in (data.view(pa.string()), data, data.dictionary_encode(), data.cast(pa.binary_view())):
        values = values_of(shard(tmp_path / "s", {"text": column}, form, rows=2))
        assert [values[0], values[2], values[3]] == ["a", None, "b"]
        assert isinstance(values[1], Bad)
        assert values[1].where.startswith("batch ")
        assert values[1].where.endswith(", row 1")
        assert "not valid UTF-8" in values[1].cause


@pytest.mark.parametrize(("column", "kind"), [([1, 2], "int64"), ([["a"]], "list"), ([{"a": 1}], "struct")])
def test_a_column_that_cannot_hold_text_is_an_error(tmp_path: Path, column: list[Any], kind: str) -> None:
    file = shard(tmp_path / "s", {"text": column})
    with pytest.raises(FieldError, match=f"column 'text' holds {kind}.* values, not text"):
        values_of(file)
    assert ArrowIpc("text").split(file, 1) is None


def test_a_missing_column_lists_those_present(tmp_path: Path) -> None:
    file = shard(tmp_path / "s", {"id": [1], "meta": [{"body": "x"}]})
    with pytest.raises(FieldError, match=r"no column 'text'; columns present: id, meta"):
        values_of(file)
    with pytest.raises(FieldError, match=r"no column 'meta\.text'; fields present in 'meta': body"):
        values_of(file, "meta.text")


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_of_one_huge_batch_only_the_column_is_read_in_little_memory(tmp_path: Path, form: str, kind: Any) -> None:
    noise = np.random.default_rng(0).integers(97, 123, 40_000_000, np.uint8).tobytes().decode()
    texts = [noise[i : i + 4000] for i in range(0, 40_000_000, 4000)]
    text = pa.array(texts, kind)
    file = shard(tmp_path / "s", {"other": texts, "text": text}, form, rows=1 << 20)
    del text
    before, rows = pa.total_allocated_bytes(), 0
    for chunk in ArrowIpc("text").read(file, WHOLE, START):
        assert chunk.values == texts[rows : rows + len(chunk.values)]
        assert sum(len(str(value)) for value in chunk.values) <= 1 << 20
        rows += len(chunk.values)
        assert pa.total_allocated_bytes() - before < 8 << 20
    assert rows == 10_000
    assert 40_000_000 < file.stats.bytes < 40_600_000
    file.stats.bytes = 0
    reader = ArrowIpc("text").read(file, WHOLE, Cursor(chunk.seek, 9_990))
    assert values_in(reader) == texts[9_990:]
    assert file.stats.bytes < 1 << 20


def test_a_dictionary_that_hides_large_rows_gives_bounded_chunks(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int8()), pa.array(["x" * 50_000]))
    file = shard(tmp_path / "s", {"text": column}, rows=3000)
    sizes = [sum(len(str(value)) for value in chunk.values) for chunk in ArrowIpc("text").read(file, WHOLE, START)]
    assert sum(sizes) == 150_000_000
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("form", MAKERS)
def test_batches_before_a_cursor_are_not_read(tmp_path: Path, form: str) -> None:
    texts = [str(i) * 10_000 for i in range(100, 300)]
    file = shard(tmp_path / "s", {"text": texts}, form, rows=10)
    last = list(ArrowIpc("text").read(file, WHOLE, START))[-1]
    file.stats.bytes = 0
    assert values_of(file, cursor=Cursor(last.seek, 5)) == texts[-5:]
    assert file.stats.bytes < 200_000


@pytest.mark.parametrize("form", MAKERS)
def test_pieces_are_batches_of_about_what_was_asked(tmp_path: Path, form: str) -> None:
    texts = [str(i) * 100 for i in range(1000, 2000)]
    file = shard(tmp_path / "s", {"text": texts}, form, rows=50)
    pieces = ArrowIpc("text").split(file, 45_000)
    assert pieces is not None
    assert len(pieces) == 10
    assert all(40_000 < piece.nbytes <= 45_000 for piece in pieces)
    assert [values_of(file, extent=piece.extent) for piece in pieces] == [
        texts[i : i + 100] for i in range(0, 1000, 100)
    ]


def test_a_stream_of_very_many_small_batches_is_not_walked(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "s", pa.schema([("text", pa.string())])) as writer:
        batch = pa.record_batch({"text": ["a"]})
        for _ in range(5000):
            writer.write_batch(batch)
    file = ShardFile(str(tmp_path / "s"), (tmp_path / "s").stat().st_size)
    assert ArrowIpc("text").split(file, 1000) is None
    assert file.stats.reads < 10
    assert len(values_of(file)) == 5000


@given(
    texts=st.lists(st.none() | st.text(max_size=20), max_size=60),
    rows=st.integers(1, 20),
    form=st.sampled_from(sorted(MAKERS)),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]),
    size=st.integers(1, 600),
)
def test_pieces_of_any_size_cover_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], rows: int, form: str, kind: Any, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "split.arrow"
    file = shard(path, {"text": pa.array(texts, kind)}, form, rows=rows)
    pieces = ArrowIpc("text").split(file, size)
    assert pieces is not None
    assert [value for piece in pieces for value in values_of(file, extent=piece.extent)] == texts
