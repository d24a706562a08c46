"""Keys: a field that stands in front of a record and is no part of it, equal from every kind of shard."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import ConfigError, FieldError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Value
from streamfeed.formats.shape import Field, Shape
from streamfeed.storage.files import ShardFile
from tests.corpora import ALL_KINDS, NO_NULLS, kind_of_reader, texts_with_ids, write_records
from tests.reading import values_in

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = texts_with_ids(40)
RECORDS = [{"text": text, "label": i % 3, "number": i, "url": f'a"b\n{i}é'} for i, text in enumerate(TEXTS)]
RECORD_KINDS = [kind for kind in ALL_KINDS if not kind.startswith("lines")]
PAIR = Shape(fields=(Field("text", None, "text"), Field("label", "label", "label")), classes=3)


def read(folder: Path, kind: str, shape: Shape, records: list[dict[str, Any]] = RECORDS, skip: int = 0) -> list[Value]:
    path = write_records(kind, folder / f"s.{kind}", records)
    file = ShardFile(str(path), path.stat().st_size)
    return list(values_in(make_format(kind_of_reader(kind), shape).read(file, WHOLE, Cursor(0, skip))))


def parted(values: list[Value]) -> list[tuple[str, str]]:
    """The key and what is behind it."""
    found = []
    for value in values:
        assert isinstance(value, str)
        key, newline, rest = value.partition("\n")
        assert newline
        found.append((orjson.loads(key), rest))
    return found


@pytest.mark.parametrize("kind", RECORD_KINDS)
@pytest.mark.parametrize("name", ["url", "number"])
def test_every_kind_puts_the_same_key_in_front_of_the_text_from_any_record_on(
    name: str, kind: str, tmp_path: Path
) -> None:
    field = f"json.{name}" if kind.startswith("tar") else name
    wanted = [(str(one[name]), one["text"]) for one in RECORDS]
    assert parted(read(tmp_path, kind, Shape().with_key(field))) == wanted
    assert parted(read(tmp_path, kind, Shape().with_key(field), skip=17)) == wanted[17:]


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_a_key_is_no_part_of_a_record_of_fields_also_where_it_is_one_of_them(kind: str, tmp_path: Path) -> None:
    plain = read(tmp_path, kind, PAIR)
    for name in ("label", "text"):
        field = {"label": "cls", "text": "txt"}[name] if kind.startswith("tar") else name
        records = [{**one, "cls": str(one["label"])} for one in RECORDS] if kind.startswith("tar") else RECORDS
        found = parted(read(tmp_path, kind, PAIR.with_key(field), records))
        assert found == [(str(one[name]), value) for one, value in zip(RECORDS, plain, strict=True)]


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.zst"])
def test_the_key_of_a_sample_is_the_name_of_its_members(kind: str, tmp_path: Path) -> None:
    wanted = [(f"{i:08}", text) for i, text in enumerate(TEXTS)]
    assert parted(read(tmp_path, kind, Shape().with_key("__key__"))) == wanted
    assert parted(read(tmp_path, kind, Shape("json.text").with_key("__key__"))) == wanted


@pytest.mark.parametrize("kind", [kind for kind in RECORD_KINDS if kind.partition(".")[0] not in NO_NULLS])
def test_a_record_without_a_key_is_bad_and_one_without_a_text_is_null(kind: str, tmp_path: Path) -> None:
    records = [dict(one) for one in RECORDS]
    records[3]["url"] = records[7]["url"] = records[5]["text"] = records[7]["text"] = None
    records[9]["url"] = ""
    prefix = "json." if kind.startswith("tar") else ""
    values = read(tmp_path, kind, Shape(f"{prefix}text").with_key(f"{prefix}url"), records)
    assert [i for i, value in enumerate(values) if isinstance(value, Bad)] == [3, 7, 9]
    assert values[5] is None
    for index, what in ((3, "null"), (7, "null"), (9, "empty")):
        bad = values[index]
        assert isinstance(bad, Bad)
        assert bad.where
        assert f"'{prefix}url' is {what}, and records are held out by it" in bad.cause


def test_text_with_half_a_character_is_bad_in_its_place_and_so_is_such_a_key(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"text": "a", "url": "x"}\n{"text": "\\ud800", "url": "x"}\n{"text": "a", "url": "\\udc00"}\n')
    file = ShardFile(str(path), path.stat().st_size)
    values = list(values_in(make_format("jsonl", Shape().with_key("url")).read(file, WHOLE, Cursor())))
    assert values[0] == '"x"\na'
    for value, place, name in ((values[1], 26, "text"), (values[2], 57, "url")):
        assert isinstance(value, Bad)
        assert (value.where, value.cause[: len(name) + 8]) == (f"byte {place}", f"field '{name}'")


def test_a_column_that_can_be_no_key_is_a_field_error_before_a_record_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    days = [dt.date(2026, 12, 2)] * 2
    pq.write_table(pa.table({"text": ["a", "b"], "day": days, "tags": [["a"], []], "share": [0.5, 1.0]}), path)
    file = ShardFile(str(path), path.stat().st_size)
    for name in ("day", "tags", "share"):
        with pytest.raises(FieldError, match=rf"column '{name}' holds .* values, not texts or whole numbers"):
            list(make_format("parquet", Shape().with_key(name)).read(file, WHOLE, Cursor()))
    with pytest.raises(FieldError, match="url"):
        list(make_format("parquet", Shape().with_key("url")).read(file, WHOLE, Cursor()))


@pytest.mark.parametrize("kind", ["lines", "text", "lines.gz"])
def test_plain_text_has_no_key(kind: str) -> None:
    with pytest.raises(ConfigError, match="none is called 'url': hold out by 'text', or by 'shard'"):
        make_format(kind, Shape().with_key("url"))


@given(st.text(min_size=1), st.text())
def test_any_key_and_any_text_are_found_again(key: str, text: str) -> None:
    shape = Shape().with_key("meta.id")
    value = shape.value({"text": text, "meta": {"id": key}}, "row 1")
    assert parted([value]) == [(key, text)]
    assert shape.texts
    assert shape.keyed
    assert not shape.plain
    assert not PAIR.with_key("x").texts
