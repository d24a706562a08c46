"""Plain text: a document a line, a document a file."""

from __future__ import annotations

import gzip
import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import CorruptShardError
from streamfeed.formats import text, zst
from streamfeed.formats.compressed import CompressedLines, Compression
from streamfeed.formats.plain import PlainLines
from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Value
from streamfeed.formats.text import TextDecoder, WholeText
from streamfeed.storage.files import ShardFile
from tests.reading import until_corrupt, values_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = Cursor()
MARK = b"\xef\xbb\xbf"
PACKERS: dict[Compression | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
COMPRESSIONS: list[Compression | None] = [None, "gz", "zst"]


def shard(path: Path, data: bytes) -> ShardFile:
    path.write_bytes(data)
    return ShardFile(str(path), len(data))


def lines(compression: Compression | None) -> PlainLines | CompressedLines:
    return PlainLines(TextDecoder()) if compression is None else CompressedLines(TextDecoder(), compression)


def lines_of(path: Path, data: bytes, compression: Compression | None) -> list[Value]:
    return values_in(lines(compression).read(shard(path, PACKERS[compression](data)), WHOLE, START))


def document_of(path: Path, data: bytes, compression: Compression | None = None) -> list[Value]:
    return values_in(WholeText(compression).read(shard(path, PACKERS[compression](data)), WHOLE, START))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_line_is_a_document_and_a_blank_one_an_empty_document(
    tmp_path: Path, compression: Compression | None
) -> None:
    path = tmp_path / "s"
    assert lines_of(path, b"a\r\n\r\n \nb\r\n{}\n\nlast", compression) == ["a", "", " ", "b", "{}", "", "last"]
    assert lines_of(path, MARK + b"a\n" + MARK + b"b\n", compression) == ["a", "\ufeffb"]
    assert lines_of(path, b"a\rb\x0bc\xe2\x80\xa8d\n", compression) == ["a\rb\x0bc\u2028d"]
    assert lines_of(path, b"\n", compression) == [""]
    assert lines_of(path, b"", compression) == []


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_line_that_is_no_utf8_is_bad_and_its_neighbours_are_read(
    tmp_path: Path, compression: Compression | None
) -> None:
    values = lines_of(tmp_path / "s", b"a\n\n\xff\xfe\nb\n", compression)
    assert [values[0], values[1], values[3]] == ["a", "", "b"]
    assert isinstance(values[2], Bad)
    assert values[2].where == ("record 2" if compression else "byte 3")
    assert "the line is not valid UTF-8: invalid start byte at its byte 0" in values[2].cause


LINES = st.lists(st.sampled_from([b"", b"\r", b"a", b" ", b"\xc3\xa9 b"]), max_size=14)


@given(lines_=LINES, ended=st.booleans(), mark=st.booleans(), size=st.integers(1, 40))
def test_extents_of_any_size_partition_the_lines_and_every_cursor_is_exact(
    tmp_path_factory: pytest.TempPathFactory, lines_: list[bytes], ended: bool, mark: bool, size: int
) -> None:
    data = MARK * mark + b"\n".join(lines_) + b"\n" * ended
    file = shard(tmp_path_factory.getbasetemp() / "lines.txt", data)
    form = PlainLines(TextDecoder())
    chunks = list(form.read(file, WHOLE, START))
    whole = values_in(chunks)
    body = data.removeprefix(MARK * mark)
    wanted = body.split(b"\n")[: -1 if body.endswith(b"\n") or not body else None]
    assert whole == [line.removesuffix(b"\r").decode() for line in wanted]
    pieces = form.split(file, size)
    assert pieces is not None
    assert [value for piece in pieces for value in values_in(form.read(file, piece.extent, START))] == whole
    for skip in range(len(whole) + 1):
        assert values_in(form.read(file, WHOLE, Cursor(0, skip))) == whole[skip:]
        for chunk in chunks[:1]:
            assert values_in(form.read(file, WHOLE, Cursor(chunk.seek, chunk.skip + skip))) == whole[skip:]


@given(lines_=LINES, cuts=st.lists(st.integers(0, 40), max_size=8), base=st.sampled_from([1, 4, 20]))
def test_every_cursor_is_exact_wherever_frames_cut_lines_blank_or_not(
    tmp_path_factory: pytest.TempPathFactory, lines_: list[bytes], cuts: list[int], base: int
) -> None:
    data = b"\n".join(lines_)
    bounds = sorted({0, len(data), *(min(at, len(data)) for at in cuts)})
    pack = PACKERS["zst"]
    packed = b"".join(pack(data[i:j]) for i, j in itertools.pairwise(bounds)) or pack(b"")
    file = shard(tmp_path_factory.getbasetemp() / "lines.txt.zst", packed)
    form = CompressedLines(TextDecoder(), "zst")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zst, "_BASE", base)
        chunks = list(form.read(file, WHOLE, START))
        whole = values_in(chunks)
        wanted = data.split(b"\n")[: -1 if data.endswith(b"\n") or not data else None]
        assert whole == [line.removesuffix(b"\r").decode() for line in wanted]
        done = 0
        for chunk in chunks:
            for i in range(len(chunk.values) + 1):
                assert values_in(form.read(file, WHOLE, Cursor(chunk.seek, chunk.skip + i))) == whole[done + i :]
            done += len(chunk.values)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_is_one_document_as_it_is(tmp_path: Path, compression: Compression | None) -> None:
    for data in (b"a\r\n\n b\n", b"", MARK + b"x", "é漢🙂".encode() * 700_000):
        assert document_of(tmp_path / "s", data, compression) == [data.removeprefix(MARK).decode()]
        file = shard(tmp_path / "s", PACKERS[compression](data))
        assert values_in(WholeText(compression).read(file, WHOLE, Cursor(0, 1))) == []
    (bad,) = document_of(tmp_path / "s", b"ab\xff", compression)
    assert isinstance(bad, Bad)
    assert "the document is not valid UTF-8: invalid start byte at its byte 2" in bad.cause


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_document_beyond_the_limit_is_a_bad_record_before_it_fills_the_memory(
    tmp_path: Path, compression: Compression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_LIMIT", 1_000_000)
    (bad,) = document_of(tmp_path / "s", b"x" * 1_000_001, compression)
    assert isinstance(bad, Bad)
    assert "more than 1,000,000 bytes" in bad.cause
    assert "lines" in bad.advice


@pytest.mark.parametrize("compression", ["gz", "zst"])
def test_a_truncated_document_is_an_error_and_no_document(tmp_path: Path, compression: Compression) -> None:
    data = PACKERS[compression](b"".join(b"%d " % i for i in range(50_000)))
    file = shard(tmp_path / "s", data[:-5])
    values, error = until_corrupt(WholeText(compression).read(file, WHOLE, START))
    assert values == []
    assert "cut off" in error.cause


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"PAR1\x15", b"ARROW1\0\0", b"\xff\xfea\0"])
def test_other_formats_under_the_name_of_text_are_refused(tmp_path: Path, head: bytes) -> None:
    for form in (WholeText(None), lines(None)):
        with pytest.raises(CorruptShardError, match=r"byte 0: the shard is named as .*text and holds "):
            values_in(form.read(shard(tmp_path / "s", head + b"\nmore"), WHOLE, START))


@pytest.mark.parametrize("head", ["PAR1 is a gene", "ARROW1", "x" * 257 + "ustar"])
def test_a_text_that_begins_like_another_format_is_text(tmp_path: Path, head: str) -> None:
    for form in (WholeText(None), lines(None)):
        assert values_in(form.read(shard(tmp_path / "s", head.encode()), WHOLE, START)) == [head]


def test_parquet_under_the_name_of_text_is_refused_whatever_it_holds(tmp_path: Path) -> None:
    for table in (pa.table({"text": ["a"]}), pa.table({"text": pa.array([], pa.string())})):
        pq.write_table(table, tmp_path / "s")
        with pytest.raises(CorruptShardError, match="holds Parquet"):
            values_in(WholeText(None).read(shard(tmp_path / "s", (tmp_path / "s").read_bytes()), WHOLE, START))
