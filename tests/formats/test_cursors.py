"""What every format promises: any cursor is exact, any split covers every record once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Chunk, Cursor, Value
from streamfeed.formats.shape import Shape
from streamfeed.storage.files import ShardFile
from tests.corpora import ALL_KINDS, FIELDS, SEEKABLE, as_written, kind_of_reader, texts_with_ids, write_shard

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streamfeed.storage.raw import RawFile

TEXTS: list[str | None] = [None if i % 11 == 5 else text for i, text in enumerate(texts_with_ids(60))]


def shard(tmp_path: Path, kind: str, texts: list[str | None], parts: int = 4) -> ShardFile:
    path = write_shard(kind, tmp_path / f"s.{kind}", texts, parts=parts)
    return ShardFile(str(path), path.stat().st_size)


def values_of(chunks: Iterable[Chunk]) -> list[Value]:
    return [value for chunk in chunks for value in chunk.values]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_reading_from_every_record_s_cursor_gives_exactly_the_rest(tmp_path: Path, kind: str) -> None:
    file, form = shard(tmp_path, kind, TEXTS), make_format(kind_of_reader(kind), Shape(FIELDS[kind]))
    texts = as_written(kind, TEXTS)
    chunks = list(form.read(file, WHOLE, Cursor()))
    assert values_of(chunks) == texts
    done = 0
    for chunk in chunks:
        for i in range(len(chunk.values) + 1):
            assert values_of(form.read(file, WHOLE, Cursor(chunk.seek, chunk.skip + i))) == texts[done + i :]
        done += len(chunk.values)
    for skip in range(len(texts) + 1):
        assert values_of(form.read(file, WHOLE, Cursor(0, skip))) == texts[skip:]


@pytest.mark.parametrize("kind", SEEKABLE)
@pytest.mark.parametrize("size", [1, 100, 777, 1500, 1 << 20])
def test_a_split_of_any_size_covers_every_record_once_in_order(tmp_path: Path, kind: str, size: int) -> None:
    file, form = shard(tmp_path, kind, TEXTS, parts=7), make_format(kind_of_reader(kind), Shape(FIELDS[kind]))
    texts = as_written(kind, TEXTS)
    pieces = form.split(file, size)
    assert pieces is not None
    assert len(pieces) > 1 or size > 1500
    assert [piece.extent.start for piece in pieces[1:]] == [piece.extent.stop for piece in pieces[:-1]]
    done = 0
    for piece in pieces:
        chunks = list(form.read(file, piece.extent, Cursor()))
        values = values_of(chunks)
        assert values == texts[done : done + len(values)]
        inside = 0
        for chunk in chunks:
            for i in range(len(chunk.values)):
                tail = values_of(form.read(file, piece.extent, Cursor(chunk.seek, chunk.skip + i)))
                assert tail == values[inside + i :]
            inside += len(chunk.values)
        done += len(values)
    assert done == len(texts)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_chunks_are_bounded_and_their_bounds_change_no_value(tmp_path: Path, kind: str) -> None:
    texts: list[str | None] = [f"id={i}; " + "é" * 3000 for i in range(3000)]
    file, form = shard(tmp_path, kind, texts, parts=3), make_format(kind_of_reader(kind), Shape(None))
    chunks = list(form.read(file, WHOLE, Cursor()))
    assert values_of(chunks) == texts
    assert all(sum(len(str(value).encode()) for value in chunk.values) < 5 << 20 for chunk in chunks)
    assert len(chunks) > 4
    middle = chunks[len(chunks) // 2]
    at = texts.index(str(middle.values[3]))
    assert values_of(form.read(file, WHOLE, Cursor(middle.seek, middle.skip + 3))) == texts[at:]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("texts", [[], ["only"], [""]])
def test_shards_of_no_record_or_one_are_read(tmp_path: Path, kind: str, texts: list[str | None]) -> None:
    file, form = shard(tmp_path, kind, texts, parts=1), make_format(kind_of_reader(kind), Shape(None))
    assert values_of(form.read(file, WHOLE, Cursor())) == texts
    pieces = form.split(file, 1000)
    assert pieces is None or values_of(form.read(file, pieces[0].extent, Cursor())) == texts


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_closed_reader_closes_its_file(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[RawFile] = []
    original = ShardFile.open

    def recorded(file: ShardFile) -> RawFile:
        opened.append(original(file))
        return opened[-1]

    monkeypatch.setattr(ShardFile, "open", recorded)
    file, form = (
        shard(tmp_path, kind, [f"id={i}; " + "x" * 3000 for i in range(3000)]),
        make_format(kind_of_reader(kind), Shape(None)),
    )
    reader = form.read(file, WHOLE, Cursor())
    next(reader)
    assert not opened[0].closed
    reader.close()  # type: ignore[attr-defined]
    assert opened[0].closed
