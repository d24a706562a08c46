"""CSV and TSV: quotes, places, text that stays text, and damage."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
from typing import TYPE_CHECKING, Literal

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats import csv_rows
from streamfeed.formats.csv_cutter import RecordCutter
from streamfeed.formats.csv_rows import CsvRows
from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Value
from streamfeed.storage.files import ShardFile
from tests.reading import until_corrupt, values_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfeed.formats.compressed import Compression

START = Cursor()
PACKERS: dict[Compression | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
COMPRESSIONS: list[Compression | None] = [None, "gz", "zst"]


def shard(path: Path, data: bytes) -> ShardFile:
    path.write_bytes(data)
    return ShardFile(str(path), len(data))


def values_of(path: Path, data: bytes, field: str = "text", cursor: Cursor = START, name: str = "csv") -> list[Value]:
    return values_in(CsvRows(name, field, None).read(shard(path, data), WHOLE, cursor))


def test_text_stays_text(tmp_path: Path) -> None:
    written = ["007", "NaN", "null", "NULL", "1e5", "", '""', "True", "  spaces ", '"  "', "-", "2020-01-01", "N/A"]
    data = b"id,text\n" + b"".join(f"{i},{text}\n".encode() for i, text in enumerate(written))
    assert values_of(tmp_path / "s", data) == [text if '"' not in text else text.strip('"') for text in written]


def test_quotes_hold_delimiters_newlines_and_quotes(tmp_path: Path) -> None:
    data = b'text,id\r\n"a,b",1\r\n"line 1\nline 2\r\n\r\n",2\r\n"say ""hi""",3\r\n"",4\r\n"""",5\r\n5\' 3",6\r\n'
    assert values_of(tmp_path / "s", data) == ["a,b", "line 1\nline 2\r\n\r\n", 'say "hi"', "", '"', "5' 3\""]
    data = b'id\ttext\n1\t"a\tb"\n2\ta,b\n3\ta "b\n'
    assert values_of(tmp_path / "s", data, name="tsv") == ["a\tb", "a,b", 'a "b']


def test_a_mark_blank_lines_and_a_missing_last_newline_change_no_record(tmp_path: Path) -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        for header in (b"text,id", b'"text","id"'):
            data = mark + header + b'\r\n\r\n\n"a",1\n\nb,2\r\n\n"c\n",3'
            assert values_of(tmp_path / "s", data) == ["a", "b", "c\n"]


def test_the_header_names_the_field_dots_and_all(tmp_path: Path) -> None:
    data = b'meta.text,"a ""b""",text\nx,y,z\n'
    assert values_of(tmp_path / "s", data, "meta.text") == ["x"]
    assert values_of(tmp_path / "s", data, 'a "b"') == ["y"]
    with pytest.raises(
        FieldError, match=r"header: there is no field 'body'; fields present: meta\.text, a \"b\", text"
    ):
        values_of(tmp_path / "s", data, "body")
    with pytest.raises(FieldError, match=r"header: there are two fields 'text'"):
        values_of(tmp_path / "s", b"text,text\n1,2\n")
    for nothing in (b"", b"\n\n"):
        with pytest.raises(CorruptShardError, match="byte 0: the shard has no header"):
            values_of(tmp_path / "s", nothing)


def test_a_bad_record_is_named_by_its_byte_and_its_neighbours_are_read(tmp_path: Path) -> None:
    bad = {
        b"1": "has 1 fields, and the header names 2",
        b"1,b,c": "has 3 fields, and the header names 2",
        b'1,"b"c': "text behind the closing quote of field 2",
        b"1,\xff": "not valid UTF-8: invalid start byte at its byte 0",
    }
    for line, cause in bad.items():
        values = values_of(tmp_path / "s", b"id,text\n0,a\n" + line + b"\n2,b\n")
        assert [values[0], values[2]] == ["a", "b"]
        assert isinstance(values[1], Bad)
        assert values[1].where == "byte 12"
        assert cause in values[1].cause
    assert values_of(tmp_path / "s", b"id,text\n\xff,a\x00b\n") == ["a\0b"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_quotes_that_are_never_closed_are_an_error_behind_the_records_before(
    tmp_path: Path, compression: Compression | None
) -> None:
    data = b'id,text\n0,a\n1,b\n2,"c\n3,d\n4,e\n'
    file = shard(tmp_path / "s", PACKERS[compression](data))
    values, error = until_corrupt(CsvRows("csv", "text", compression).read(file, WHOLE, START))
    assert values == ["a", "b"]
    assert error.where == ("record 2" if compression else "byte 16")
    assert "ends inside of the quotes" in error.cause


def test_a_record_without_end_is_an_error_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "LINE_LIMIT", 1 << 20)
    for filling in (b"x\n", b"x"):
        data = b'id,text\n0,a\n1,"' + filling * (1 << 21) + b'"\n'
        values, error = until_corrupt(CsvRows("csv", "text", None).read(shard(tmp_path / "s", data), WHOLE, START))
        assert values == ["a"]
        assert (error.where, error.cause) == ("byte 12", "a record has more than 1 MiB")


def test_many_short_lines_behind_an_open_quote_take_little_more_than_their_bytes() -> None:
    cutter = RecordCutter(0, b",")
    tracemalloc.start()
    try:
        for _ in range(16):
            cutter.feed(b'"' * (not cutter.held) + b"ab\n" * 20_000)
        assert tracemalloc.get_traced_memory()[0] < 2 * cutter.held
    finally:
        tracemalloc.stop()


def test_a_field_of_20_mb_is_one_record(tmp_path: Path) -> None:
    long = 'é"\n' * 5_000_000
    data = b"id,text\n0,a\n1," + b'"' + long.replace('"', '""').encode() + b'"\n2,b\n'
    assert values_of(tmp_path / "s", data) == ["a", long, "b"]


@pytest.mark.parametrize("compression", ["gz", "zst"])
def test_truncated_compression_gives_the_records_before(tmp_path: Path, compression: Compression) -> None:
    rows = [f"row {i}" for i in range(30_000)]
    data = PACKERS[compression](b"id,text\n" + b"".join(f'{i},"{row}"\n'.encode() for i, row in enumerate(rows)))
    file = shard(tmp_path / "s", data[: len(data) - 3])
    values, error = until_corrupt(CsvRows("csv", "text", compression).read(file, WHOLE, START))
    assert values == rows[: len(values)]
    assert len(values) > 10_000
    assert "cut off" in error.cause


def test_a_resume_reads_the_header_and_what_follows_its_record(tmp_path: Path) -> None:
    texts = [f"{i} " + "x" * 1000 for i in range(5000)]
    data = b"text\n" + b"".join(text.encode() + b"\n" for text in texts)
    file = shard(tmp_path / "s", data)
    last = list(CsvRows("csv", "text", None).read(file, WHOLE, START))[-1]
    file.stats.bytes = 0
    found = values_in(CsvRows("csv", "text", None).read(file, WHOLE, Cursor(last.seek, last.skip + 3)))
    assert found == list(last.values)[3:]
    assert file.stats.bytes < 700_000


QUOTING: list[Literal[0, 1]] = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL]
CELL = st.text(alphabet='ab,"\t\n\r é\0', max_size=6)


@given(
    rows=st.lists(st.tuples(CELL, CELL), max_size=12),
    quoting=st.sampled_from(QUOTING),
    end=st.sampled_from(["\n", "\r\n"]),
    block=st.sampled_from([1, 2, 7, 1 << 18]),
    compression=st.sampled_from(COMPRESSIONS),
    name=st.sampled_from(["csv", "tsv"]),
)
def test_what_the_csv_module_writes_is_read_from_every_cursor_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    quoting: Literal[0, 1],
    end: str,
    block: int,
    compression: Compression | None,
    name: str,
) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="," if name == "csv" else "\t", quoting=quoting, lineterminator=end)
    writer.writerows([("id", "text"), *rows])
    pack = PACKERS[compression]
    data = buffer.getvalue().encode()
    packed = b"".join(pack(data[i : i + 5 * block]) for i in range(0, len(data), 5 * block))
    file = shard(tmp_path_factory.getbasetemp() / "property", packed)
    form = CsvRows(name, "text", compression)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "BLOCK", block)
        chunks = list(form.read(file, WHOLE, START))
        wanted = [text for _, text in rows]
        assert values_in(chunks) == wanted
        done = 0
        for chunk in chunks:
            for i in range(len(chunk.values) + 1):
                assert values_in(form.read(file, WHOLE, Cursor(chunk.seek, chunk.skip + i))) == wanted[done + i :]
            done += len(chunk.values)
