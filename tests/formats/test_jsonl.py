"""Plain JSON Lines: what a record is, and which extent it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import CorruptShardError
from streamfeed.formats.jsonl import JsonDecoder
from streamfeed.formats.plain import PlainLines
from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Extent, Value
from streamfeed.storage.files import ShardFile

if TYPE_CHECKING:
    from pathlib import Path

START = Cursor()


def values_of(
    path: Path, data: bytes, field: str = "text", extent: Extent = WHOLE, cursor: Cursor = START
) -> list[Value]:
    path.write_bytes(data)
    file = ShardFile(str(path), len(data))
    return [value for chunk in PlainLines(JsonDecoder(field)).read(file, extent, cursor) for value in chunk.values]


def bad_of(path: Path, line: bytes, field: str = "text") -> Bad:
    values = values_of(path, b'{"text": "a"}\n' + line + b'\n{"text": "b"}\n', field)
    assert len(values) == 3
    assert isinstance(values[1], Bad)
    assert values[1].where == "byte 14"
    return values[1]


def test_blank_lines_crlf_bom_and_a_missing_last_newline_change_no_record(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"text": "a"}\r\n\n  \r\n{"text": null}\n\t\n{"text": "c"}'
    assert values_of(tmp_path / "s.jsonl", data) == ["a", None, "c"]


def test_an_empty_shard_has_no_records(tmp_path: Path) -> None:
    assert values_of(tmp_path / "s.jsonl", b"") == []
    assert values_of(tmp_path / "s.jsonl", b"\n \n") == []


def test_a_line_of_20_mb_is_one_record(tmp_path: Path) -> None:
    long = "é" * 10_000_000
    data = orjson.dumps({"text": "a"}) + b"\n" + orjson.dumps({"text": long}) + b"\n" + orjson.dumps({"text": "b"})
    assert values_of(tmp_path / "s.jsonl", data) == ["a", long, "b"]
    inside = Extent(1_000, 2_000)
    assert values_of(tmp_path / "s.jsonl", data, extent=inside) == []


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b'{"text": ', "not valid JSON"),
        (b"not json", "not valid JSON"),
        (b'{"text": "\xff"}', "not valid UTF-8"),
        (b'{"text": "\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"text": "\\ud800"}', "lone surrogate, U+D800"),
        (b'["text"]', "a list, not an object"),
        (b"7", "a number, not an object"),
        (b"null", "null, not an object"),
        (b'{"text": 7}', "a number, not a string"),
        (b'{"text": ["a"]}', "a list, not a string"),
        (b'{"text": NaN}', "a number, not a string"),
        (b'{"id": 7, "body": "x"}', "no field 'text'; fields present: id, body"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_bad_line_is_named_by_its_byte_and_its_neighbours_are_read(tmp_path: Path, line: bytes, cause: str) -> None:
    assert cause in bad_of(tmp_path / "s.jsonl", line).cause


@pytest.mark.parametrize(
    "line",
    [b'{"text": "x", "score": NaN}', b'{"n": 1' + b"0" * 400 + b', "text": "x"}', b'{"text": "x", "o": "\\udc00"}'],
)
def test_what_other_fields_hold_fails_no_record(tmp_path: Path, line: bytes) -> None:
    assert values_of(tmp_path / "s.jsonl", line) == ["x"]


def test_dotted_fields_reach_into_objects(tmp_path: Path) -> None:
    data = b'{"m": {"b": "x"}}\n{"m": null}\n{"m.b": "literal", "m": {"b": "nested"}}\n'
    data += b'{"m": {"b": null}}\n{"m": 3}\n{"m": {"c": 1}}\n'
    values = values_of(tmp_path / "s.jsonl", data, "m.b")
    assert values[:4] == ["x", None, "literal", None]
    causes = [value.cause for value in values[4:] if isinstance(value, Bad)]
    assert causes == [
        "there is no field 'm.b': 'm' is a number, not an object",
        "there is no field 'm.b'; fields of 'm' present: c",
    ]


def test_a_compressed_shard_under_a_plain_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptShardError, match=r"byte 0: .*holds gzip data"):
        values_of(tmp_path / "s.jsonl", b"\x1f\x8b\x08\x00abc")


def test_a_split_reads_nothing_and_an_extent_little_more_than_its_bytes(tmp_path: Path) -> None:
    data = b"".join(orjson.dumps({"text": "x" * 1000}) + b"\n" for _ in range(5000))
    (tmp_path / "s.jsonl").write_bytes(data)
    file = ShardFile(str(tmp_path / "s.jsonl"), len(data))
    pieces = PlainLines(JsonDecoder("text")).split(file, 1_000_000)
    assert pieces is not None
    assert file.stats.bytes == 0
    assert max(piece.nbytes for piece in pieces) <= 1_000_000
    extent = pieces[2].extent
    assert sum(len(chunk.values) for chunk in PlainLines(JsonDecoder("text")).read(file, extent, Cursor())) in range(
        820, 850
    )
    assert file.stats.bytes < 1_000_000 + 3 * (1 << 16)


LINE = st.sampled_from([b'{"text":"a"}', b'{"text":""}', b"", b" ", b"\r", b'{"text":null}\r', b"bad"])


@given(st.lists(LINE, max_size=12), st.booleans(), st.integers(1, 60))
def test_extents_of_any_size_partition_the_records(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "partition.jsonl"
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    whole = values_of(path, data)
    assert len(whole) == sum(bool(line.strip()) for line in data.split(b"\n"))
    file = ShardFile(str(path), len(data))
    pieces = PlainLines(JsonDecoder("text")).split(file, size)
    assert pieces is not None
    parts = [
        value
        for piece in pieces
        for chunk in PlainLines(JsonDecoder("text")).read(file, piece.extent, Cursor())
        for value in chunk.values
    ]
    assert parts == whole


def test_a_byte_order_mark_moves_no_place_and_alone_on_its_line_is_no_record(tmp_path: Path) -> None:
    mark, path = b"\xef\xbb\xbf", tmp_path / "a.jsonl"
    for first in (mark, mark + b"\n", mark + b" \r\n"):
        data = first + b'{"text": "a"}\n{"text": "b"}\nnot JSON\n{"text": "c"}\n'
        whole = values_of(path, data)
        assert [value for value in whole if isinstance(value, str)] == ["a", "b", "c"]
        assert isinstance(whole[2], Bad)
        assert whole[2].where == f"byte {data.index(b'not')}"
        chunk = next(PlainLines(JsonDecoder("text")).read(ShardFile(str(path), len(data)), WHOLE, START))
        for base in (START, Cursor(chunk.seek, chunk.skip)):
            for skip in range(len(whole) + 1):
                assert values_of(path, data, cursor=Cursor(base.seek, base.skip + skip)) == whole[skip:]
