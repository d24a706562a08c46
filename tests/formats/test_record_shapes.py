"""Records of several fields: equal from every kind of shard, from every cursor, and what is wrong with one is said."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from streamfeed.errors import ConfigError, FieldError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Bad, Chunk, Cursor, Value
from streamfeed.formats.shape import Field, FieldKind, Shape
from streamfeed.storage.files import ShardFile
from tests.corpora import (
    ALL_KINDS,
    NO_NULLS,
    SEEKABLE,
    kind_of_reader,
    texts_with_ids,
    write_records,
)
from tests.reading import values_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfeed.formats.protocol import Format

TEXTS = texts_with_ids(60)
PAIRED = [{"text": text, "pair": f"pair of {i} é", "label": i % 3} for i, text in enumerate(TEXTS)]
RECORD_KINDS = [kind for kind in ALL_KINDS if not kind.startswith("lines")]
NULL_KINDS = [kind for kind in RECORD_KINDS if kind.partition(".")[0] not in NO_NULLS]
SHAPE = Shape(
    fields=(Field("text", None, "text"), Field("text_pair", "pair", "text"), Field("label", "label", "label")),
    classes=3,
)
WANTED = [{"text": one["text"], "text_pair": one["pair"], "label": one["label"]} for one in PAIRED]


def written(folder: Path, kind: str, records: Sequence[dict[str, Any]], parts: int = 4) -> ShardFile:
    path = write_records(kind, folder / f"s.{kind}", records, parts=parts)
    return ShardFile(str(path), path.stat().st_size)


def reader(kind: str, shape: Shape) -> Format:
    return make_format(kind_of_reader(kind), shape)


def in_json(shape: Shape) -> Shape:
    """Return the shape as fields of a tar's ``.json``, where nulls are."""
    return Shape(
        fields=tuple(field._replace(name=f"json.{field.name or 'text'}") for field in shape.fields),
        labels=shape.labels,
        classes=shape.classes,
    )


def loaded(values: Sequence[Value]) -> list[Any]:
    return [orjson.loads(value) if isinstance(value, str) else value for value in values]


def read(folder: Path, kind: str, records: Sequence[dict[str, Any]], shape: Shape) -> list[Any]:
    return loaded(values_in(reader(kind, shape).read(written(folder, kind, records), WHOLE, Cursor())))


def one_field(kind: FieldKind, name: str = "x", **settings: Any) -> Shape:
    return Shape(fields=(Field("x", name, kind),), **settings)


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_every_kind_gives_equal_records_and_every_cursor_the_rest_of_them(tmp_path: Path, kind: str) -> None:
    file, form = written(tmp_path, kind, PAIRED), reader(kind, SHAPE)
    chunks: list[Chunk] = list(form.read(file, WHOLE, Cursor()))
    values = values_in(chunks)
    assert loaded(values) == WANTED
    done = 0
    for chunk in chunks:
        for i in range(len(chunk.values) + 1):
            assert values_in(form.read(file, WHOLE, Cursor(chunk.seek, chunk.skip + i))) == values[done + i :]
        done += len(chunk.values)
    for skip in range(len(values) + 1):
        assert values_in(form.read(file, WHOLE, Cursor(0, skip))) == values[skip:]


@pytest.mark.parametrize("kind", [kind for kind in SEEKABLE if kind in RECORD_KINDS])
@pytest.mark.parametrize("size", [1, 100, 777, 1 << 20])
def test_a_split_covers_every_record_once_in_order(tmp_path: Path, kind: str, size: int) -> None:
    file, form = written(tmp_path, kind, PAIRED, parts=7), reader(kind, SHAPE)
    pieces = form.split(file, size)
    assert pieces is not None
    assert len(pieces) > 1 or size > 777
    assert [piece.extent.start for piece in pieces[1:]] == [piece.extent.stop for piece in pieces[:-1]]
    assert loaded([value for piece in pieces for value in values_in(form.read(file, piece.extent, Cursor()))]) == WANTED


@pytest.mark.parametrize("kind", [kind for kind in SEEKABLE if kind in RECORD_KINDS])
def test_a_cursor_means_the_same_record_as_where_the_text_alone_is_read(tmp_path: Path, kind: str) -> None:
    file, form = written(tmp_path, kind, PAIRED), reader(kind, SHAPE)
    done = 0
    for chunk in reader(kind, Shape()).read(file, WHOLE, Cursor()):
        for i in range(len(chunk.values)):
            rest = loaded(values_in(form.read(file, WHOLE, Cursor(chunk.seek, chunk.skip + i))))
            assert rest == WANTED[done + i :]
        done += len(chunk.values)
    assert done == len(WANTED)


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_chunks_of_large_records_are_bounded(tmp_path: Path, kind: str) -> None:
    records = [{"text": f"id={i}; " + "é" * 3000, "pair": "x" * 1000, "label": i % 3} for i in range(1500)]
    file, form = written(tmp_path, kind, records), reader(kind, SHAPE)
    chunks = list(form.read(file, WHOLE, Cursor()))
    assert [one["text"] for one in loaded(values_in(chunks))] == [one["text"] for one in records]
    assert max(sum(len(str(value)) for value in chunk.values) for chunk in chunks) < 3 << 20
    middle = chunks[len(chunks) // 2]
    rest = values_in(chunks[len(chunks) // 2 :])[1:]
    assert values_in(form.read(file, WHOLE, Cursor(middle.seek, middle.skip + 1))) == rest


@pytest.mark.parametrize("kind", NULL_KINDS)
def test_a_null_of_any_field_drops_the_record(tmp_path: Path, kind: str) -> None:
    records = [dict(one) for one in PAIRED]
    for i, key in ((3, "text"), (7, "pair"), (8, "label")):
        records[i][key] = None
    found = read(tmp_path, kind, records, in_json(SHAPE) if kind.startswith("tar") else SHAPE)
    assert found == [None if i in {3, 7, 8} else one for i, one in enumerate(WANTED)]


@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if kind.startswith("lines")])
def test_a_line_of_text_is_a_record_of_the_text_alone(tmp_path: Path, kind: str) -> None:
    shape = Shape(fields=(Field("text", None, "text"), Field("again", "text", "any")))
    records = [{"text": "a"}, {"text": ""}, {"text": "Zürich"}]
    assert read(tmp_path, kind, records, shape) == [{"text": one["text"], "again": one["text"]} for one in records]
    with pytest.raises(ConfigError, match="none is called 'label'"):
        reader(kind, one_field("label", "label"))


@pytest.mark.parametrize("kind", ["text", "text.gz"])
def test_a_file_of_text_is_a_record_of_the_text_alone(tmp_path: Path, kind: str) -> None:
    data = b"one\ndocument"
    path = tmp_path / "s"
    path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    form = make_format(kind, Shape(fields=(Field("prompt", None, "text"),)))
    (value,) = values_in(form.read(ShardFile(str(path), path.stat().st_size), WHOLE, Cursor()))
    assert loaded([value]) == [{"prompt": "one\ndocument"}]


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_labels_with_names_are_numbered_in_their_order(tmp_path: Path, kind: str) -> None:
    names = ("no", "perhaps", "yes, or 1")
    records = [{"text": str(i), "x": names[i % 3]} for i in range(12)]
    assert read(tmp_path, kind, records, one_field("label", labels=names)) == [{"x": i % 3} for i in range(12)]


@pytest.mark.parametrize("kind", RECORD_KINDS)
@pytest.mark.parametrize(
    ("label", "settings", "cause"),
    [
        (3, {"classes": 3}, "field 'x' is 3, and labels are numbers from 0 to 2"),
        (-1, {"classes": 3}, "-1.*numbers? from 0 to 2"),
        ("good", {"classes": 3}, "field 'x' is 'good', and a label is a whole number from 0 to 2"),
        ("good", {"labels": ("bad", "Good")}, "field 'x' is 'good', and labels are bad, Good"),
    ],
)
def test_a_label_that_is_none_names_itself_and_what_is_allowed(
    tmp_path: Path, kind: str, label: object, settings: dict[str, Any], cause: str
) -> None:
    (value,) = read(tmp_path, kind, [{"text": "a", "x": label}], one_field("label", **settings))
    assert isinstance(value, Bad)
    assert re.search(cause, value.cause)
    assert value.where


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow", "tar", "csv"])
def test_numbers_are_no_labels_where_labels_have_names(tmp_path: Path, kind: str) -> None:
    name = "json.x" if kind == "tar" else "x"
    (value,) = read(tmp_path, kind, [{"text": "a", "x": 0}], one_field("label", name, labels=("no", "yes")))
    assert isinstance(value, Bad)
    assert "and labels are no, yes" in value.cause
    assert kind == "csv" or "give their count as classes" in value.advice


@pytest.mark.parametrize("kind", NULL_KINDS)
def test_booleans_are_labels(tmp_path: Path, kind: str) -> None:
    name = "json.x" if kind.startswith("tar") else "x"
    records = [{"text": "a", "x": True}, {"text": "b", "x": False}]
    assert read(tmp_path, kind, records, one_field("label", name, classes=2)) == [{"x": 1}, {"x": 0}]


CONVERSATIONS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "héllo"}, {"role": "assistant", "content": ""}]},
    {"messages": [{"role": "system", "content": "be", "name": "x"}]},
    {
        "messages": [
            {"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]},
            {"role": "tool", "content": "4", "tool_call_id": 1},
        ]
    },
]
MESSAGES = Shape(fields=(Field("messages", "messages", "messages"),))


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_messages_keep_all_their_keys_and_have_none_that_is_null(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, kind, CONVERSATIONS * 5, MESSAGES) == CONVERSATIONS * 5


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_parts_of_text_are_joined(tmp_path: Path, kind: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "é"}]
    records = [{"text": "x", "messages": [{"role": "user", "content": parts}]}]
    assert read(tmp_path, kind, records, MESSAGES) == [{"messages": [{"role": "user", "content": "aé"}]}]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst", "parquet", "arrow", "arrows", "tar", "tar.gz", "csv"])
@pytest.mark.parametrize(
    ("messages", "cause"),
    [
        ([], "field 'messages' is a list without a message"),
        ([{"content": "a"}], "message 0 of field 'messages' has no role; keys present: content"),
        ([{"role": "user"}], "message 0 of field 'messages' has no content; keys present: role"),
        ([{"role": 1, "content": "a"}], "message 0 of field 'messages' has a number as its role"),
        ([{"role": "u", "content": 1}], "message 0 of field 'messages' has a number as its content"),
        ([{"role": "u", "content": [{"type": "image", "text": "u"}]}], "has a part in its content that is no text"),
        ([{"role": "a", "content": "a"}, {"role": "b", "content": None}], "message 1 .* has no content"),
    ],
)
def test_messages_that_are_none_say_what_is_wrong(tmp_path: Path, kind: str, messages: object, cause: str) -> None:
    # The first record says what the type of the column is.
    records: list[dict[str, Any]] = [{"messages": [{"role": "user", "content": "a"}]}, {"messages": messages}]
    if "number" in cause or "part" in cause:
        records[0] = records[1]  # a column has one type
    *_, value = read(tmp_path, kind, records, MESSAGES)
    assert isinstance(value, Bad)
    assert re.search(cause, value.cause)
    assert value.where


@pytest.mark.parametrize("messages", ["[1]", '{"role": "user"}', "1", "no json", '"a"'])
def test_text_that_is_no_list_of_messages_is_bad(tmp_path: Path, messages: str) -> None:
    for kind in ("csv", "jsonl", "parquet", "tar"):
        (value,) = read(tmp_path, kind, [{"text": "a", "messages": messages}], MESSAGES)
        assert isinstance(value, Bad)
        assert "messages" in value.cause


def test_a_bad_field_has_the_words_of_a_bad_text_and_its_place(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"x": "a"}\n{"x": 1}\n{"y": 1}\nnope\n[1]\n{"x": "\\ud800"}\n{"x": null}\n')
    file = ShardFile(str(path), path.stat().st_size)
    values = values_in(make_format("jsonl", one_field("text")).read(file, WHOLE, Cursor()))
    plain = values_in(make_format("jsonl", Shape("x")).read(file, WHOLE, Cursor()))
    assert values == ['{"x":"a"}', *plain[1:]]
    assert [value.where for value in values if isinstance(value, Bad)] == [f"byte {at}" for at in (11, 20, 29, 34, 38)]


def test_a_field_that_is_absent_lists_those_present(tmp_path: Path) -> None:
    for kind in ("parquet", "arrow", "arrows", "csv", "tsv.gz"):
        with pytest.raises(FieldError, match=r"no (column|field) 'x'; (columns|fields) present: text, pair, label"):
            read(tmp_path, kind, PAIRED, one_field("label", classes=2))
    (value,) = read(tmp_path, "jsonl", PAIRED[:1], one_field("label", classes=2))
    assert value == Bad("byte 0", "there is no field 'x'; fields present: text, pair, label")
    (value,) = read(tmp_path, "tar", PAIRED[:1], one_field("label", classes=2))
    assert value.cause == "there is no member 'x'; members present: txt, pair, label, json"


@pytest.mark.parametrize("kind", NULL_KINDS)
def test_whatever_json_can_say_is_kept(tmp_path: Path, kind: str) -> None:
    values: list[Any] = [{"a": [1, None, 2.5], "b": {"c": "é"}}, None, {"a": [], "b": None}]
    name = "json.x" if kind.startswith("tar") else "x"
    shape = one_field("any", name)
    assert read(tmp_path, kind, [{"id": 1, "x": value} for value in values], shape) == [
        {"x": value} for value in values
    ]


def test_dotted_names_are_found_as_a_text_s_are(tmp_path: Path) -> None:
    shape = Shape(fields=(Field("text", "meta.a", "text"), Field("label", "meta.b.c", "label")), classes=9)
    records: list[dict[str, Any]] = [
        {"meta": {"a": "x", "b": {"c": 1}}},
        {"meta": None},
        {"meta": {"a": "y", "b": None}},
        {"meta": {"a": "z", "b": {"c": 8}}},
    ]
    for kind in ("jsonl", "parquet", "arrow", "arrows"):
        assert read(tmp_path / kind, kind, records, shape) == [
            {"text": "x", "label": 1},
            None,
            None,
            {"text": "z", "label": 8},
        ]
    literal: list[dict[str, Any]] = [{"meta": {"a": "x", "b": {"c": 1}}, "meta.a": "it has the dots"}]
    for kind in ("jsonl", "parquet", "arrow"):
        assert read(tmp_path / kind, kind, literal, shape) == [{"text": "it has the dots", "label": 1}]


def test_a_tar_s_member_is_its_text_and_its_json_is_what_it_says(tmp_path: Path) -> None:
    shape = Shape(
        fields=(
            Field("text", None, "text"),
            Field("label", "label", "label"),
            Field("all", "json", "any"),
            Field("deep", "json.pair", "any"),
        ),
        classes=3,
    )
    for kind in ("tar", "tar.zst"):
        found = read(tmp_path, kind, PAIRED[:2], shape)
        assert found[1] == {"text": PAIRED[1]["text"], "label": 1, "all": PAIRED[1], "deep": PAIRED[1]["pair"]}


def test_text_of_a_csv_stays_text(tmp_path: Path) -> None:
    records = [{"x": text, "text": text} for text in ("007", "NaN", "null", "", "true")]
    for kind in ("csv", "tsv.zst"):
        assert read(tmp_path, kind, records, one_field("any")) == [{"x": one["x"]} for one in records]
        found = read(tmp_path, kind, records, one_field("label", classes=9))
        assert found[0] == {"x": 7}
        assert all(isinstance(value, Bad) for value in found[1:])
