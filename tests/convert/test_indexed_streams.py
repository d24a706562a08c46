"""A manifest beside shards lets streams enter what nobody else could; never needed, and never believed blindly."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.convert.engines import LocalEngine
from streamfeed.convert.index import index_folder
from streamfeed.errors import StateError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import Cursor
from streamfeed.formats.shape import Shape
from streamfeed.plan.indexed import Indexed
from streamfeed.plan.shards import ShardTable
from streamfeed.storage.files import ShardFile
from tests.convert.conversions import convert
from tests.corpora import texts_with_ids, write_corpus, write_shard
from tests.streams import Run, stream

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")

TEXTS = texts_with_ids(300, words=30)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one shard of zstd lines with many frames, by a conversion."""
    monkeypatch.setattr("streamfeed.convert.writers.FRAME", 1500)
    monkeypatch.setattr("streamfeed.convert.writers._SPACING", 1)
    monkeypatch.setattr("streamfeed.plan.split.LEAST_PIECE_BYTES", 100)
    write_corpus("jsonl", tmp_path / "in", TEXTS)
    convert(tmp_path / "in", tmp_path / "out", "jsonl.zst")
    return tmp_path / "out"


def table(*paths: Path) -> ShardTable:
    kind = "tar" if paths[0].suffix == ".tar" else "jsonl.zst"
    return ShardTable.build([str(path) for path in paths], [path.stat().st_size for path in paths], [kind] * len(paths))


@pytest.mark.parametrize("size", [1, 700, 5000, 1 << 20])
def test_the_pieces_of_a_manifest_cover_every_record_once_from_any_cursor(shards: Path, size: int) -> None:
    path = shards / "shard-00000.jsonl.zst"
    pieces = Indexed(table(path), None).pieces(0, size)
    assert pieces is not None
    assert (len(pieces) > 10) is (size < 5000)
    form, file = make_format("jsonl.zst", Shape("text")), ShardFile(str(path), path.stat().st_size)
    done = 0
    for piece in pieces:
        chunks = list(form.read(file, piece.extent, Cursor()))
        inside = 0
        for chunk in chunks:
            assert list(chunk.values) == TEXTS[done + inside : done + inside + len(chunk.values)]
            again = form.read(file, piece.extent, Cursor(chunk.seek, chunk.skip + 1))
            rest = [value for one in again for value in one.values]
            assert rest == TEXTS[done + inside + 1 : done + sum(len(one.values) for one in chunks)]
            inside += len(chunk.values)
        done += inside
    assert done == len(TEXTS)


def test_a_compressed_shard_with_a_manifest_is_cut_for_its_lanes_and_not_read_by_all(
    shards: Path, tokenizer: Any
) -> None:
    def texts(config: Any) -> Counter[str]:
        run = Run.start(config, 1, 2)
        units = run.loaders[0].plan.sources[0].units
        assert (int(units.step.max()) > 1) is not (shards / "index.json").exists()
        rows = [row[row != tokenizer.eos_token_id] for batch in run.take()[0] for row in batch["input_ids"]]
        return Counter(filter(None, tokenizer.batch_decode(rows)))

    config = stream(shards, "jsonl.zst", tokenizer, epochs=1, lanes=4, packing="none", seq_len=512)
    with_index = texts(config)
    (shards / "index.json").unlink()
    assert texts(config) == with_index == Counter(TEXTS)


def test_a_stream_that_was_cut_by_a_manifest_is_not_resumed_without_it(shards: Path, tokenizer: Any) -> None:
    config = stream(shards, "jsonl.zst", tokenizer, epochs=1)
    run = Run.start(config, 1, 2)
    run.take(3)
    state = run.state()
    again = Run.start(config, 1, 2, state=state).take(2)
    assert len(again[0]) == 2
    (shards / "index.json").unlink()
    with pytest.raises(StateError, match="index"):
        Run.start(config, 1, 2, state=state)


@pytest.mark.parametrize("change", ["size", "version", "foreign", "damaged"])
def test_a_stale_or_foreign_manifest_is_ignored(change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_shard("tar", tmp_path / "a.tar", texts_with_ids(3000, words=200))
    index_folder(str(tmp_path), LocalEngine())
    assert Indexed(table(path), None).pieces(0, 1) is not None
    said = json.loads((tmp_path / "index.json").read_bytes())
    shards = table(path)
    if change == "size":
        path.write_bytes(path.read_bytes() + bytes(512))
        shards = table(path)
    elif change == "version":
        shards = ShardTable.build([str(path)], [path.stat().st_size], ["tar"], ["another"])
    else:
        (tmp_path / "index.json").write_text('{"shards": []}' if change == "foreign" else json.dumps(said)[:-100])
    with caplog.at_level(logging.WARNING):
        assert Indexed(shards, None).pieces(0, 1) is None
    assert ("make that again with streamfeed index" in caplog.text) is (change in {"size", "version"})


def test_a_manifest_that_cannot_be_read_is_done_without_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_shard("tar", tmp_path / "a.tar", texts_with_ids(30, words=20))
    (tmp_path / "index.json").mkdir()
    with caplog.at_level(logging.WARNING):
        assert Indexed(table(path), None).pieces(0, 1) is None
    assert "index.json cannot be read, and shards are cut without it" in caplog.text


def test_a_manifest_further_up_tells_of_shards_in_folders(tmp_path: Path) -> None:
    path = write_shard("tar", tmp_path / "train" / "a.tar", texts_with_ids(3000, words=200))
    index_folder(str(tmp_path), LocalEngine())
    pieces = Indexed(table(path), None).pieces(0, 1)
    assert pieces is not None
    assert len(pieces) > 1
    form, file = make_format("tar", Shape("txt")), ShardFile(str(path), path.stat().st_size)
    found = [value for piece in pieces for chunk in form.read(file, piece.extent, Cursor()) for value in chunk.values]
    assert found == texts_with_ids(3000, words=200)
