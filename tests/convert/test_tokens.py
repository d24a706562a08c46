"""Shards of tokens: a stream of them is the stream of the texts that they were made of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed import Source, StreamConfig
from streamfeed.convert.engines import LocalEngine
from streamfeed.convert.verify import verify_folder
from streamfeed.encode.proof import prove
from streamfeed.errors import ConfigError, CorruptShardError, FieldError, SourceError
from streamfeed.formats.code_points import MOST_IDS, ids_of, text_of_ids
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Chunk, Cursor, Extent
from streamfeed.formats.shape import Shape
from streamfeed.formats.tokens import META
from streamfeed.objectives import Map, PromptCompletion
from streamfeed.storage.files import ShardFile
from tests.convert.conversions import conversion, convert, files
from tests.corpora import texts_with_ids, write_corpus, write_shard
from tests.streams import CACHE, Run, equal, lane_tokens

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.encode.tokenizer import TokenizerSpec

pytestmark = pytest.mark.usefixtures("one_engine")

TEXTS: list[str | None] = [
    None if i % 13 == 5 else "" if i % 13 == 9 else text for i, text in enumerate(texts_with_ids(90))
]


@pytest.fixture
def tokens(spec_of_tokenizer: TokenizerSpec) -> dict[str, Any]:
    """The settings of a conversion to tokens."""
    return {"tokenizer": spec_of_tokenizer, "verdict": prove(spec_of_tokenizer, CACHE)}


def stream_of(source: Source, tokenizer: Any, **changes: Any) -> StreamConfig:
    return replace(StreamConfig([source], tokenizer=tokenizer, seq_len=32, shuffle_buffer=0, epochs=1), **changes)


def shard(path: Path) -> ShardFile:
    return ShardFile(str(path), path.stat().st_size)


def test_a_stream_of_tokens_is_the_stream_of_their_texts(
    tmp_path: Path, tokenizer: Any, tokens: dict[str, Any]
) -> None:
    write_corpus("jsonl", tmp_path / "text", TEXTS)
    manifest = convert(tmp_path / "text", tmp_path / "tokens", "tokens", max_records=40, **tokens)
    assert [shard.counted.records for shard in manifest.shards] == [40, 40, 10]
    for packing in ("concat", "best_fit", "none"):
        runs = [
            Run.start(stream_of(Source(str(tmp_path / name)), tokenizer, lanes=1, packing=packing), 1, 4)
            for name in ("text", "tokens")
        ]
        text, encoded = (run.take() for run in runs)
        assert equal(text[0], encoded[0])
        tallies = [run.loaders[0].report().tally.counts() for run in runs]
        assert tallies[0] == tallies[1]
    eos = tokenizer.eos_token_id
    count = sum(token == eos for lane in lane_tokens(text, 1) for token in lane)
    assert manifest.tokens == sum(len(tokenizer(one)["input_ids"]) + 1 for one in TEXTS if one)
    assert count >= sum(bool(one) for one in TEXTS)


def test_tokens_are_kept_in_the_smallest_integers_with_the_tokenizer_s_print(
    tmp_path: Path, tokens: dict[str, Any], spec_of_tokenizer: TokenizerSpec
) -> None:
    write_corpus("jsonl", tmp_path / "text", TEXTS)
    convert(tmp_path / "text", tmp_path / "tokens", "tokens", **tokens)
    path = tmp_path / "tokens" / "shard-00000.tokens"
    found = pa.ipc.open_file(path).read_all()
    assert spec_of_tokenizer.vocab_size > 256
    assert found.schema.field("ids").type == pa.large_list(pa.uint16())
    assert found.column("ids").null_count == sum(text is None for text in TEXTS)
    assert json.loads(found.schema.metadata[META]) == {
        "tokenizer": spec_of_tokenizer.fingerprint,
        "vocabulary": spec_of_tokenizer.vocab_size,
        "name": spec_of_tokenizer.name,
    }
    assert verify_folder(str(tmp_path / "tokens"), LocalEngine()).problems == ()


def test_tokens_of_another_tokenizer_are_refused_when_they_are_read(
    tmp_path: Path, tokenizer: Any, tokens: dict[str, Any], spec_of_tokenizer: TokenizerSpec
) -> None:
    write_corpus("jsonl", tmp_path / "text", TEXTS)
    other = replace(spec_of_tokenizer, fingerprint="0123", name="another")
    convert(tmp_path / "text", tmp_path / "tokens", "tokens", tokenizer=other, verdict=tokens["verdict"])
    run = Run.start(stream_of(Source(str(tmp_path / "tokens")), tokenizer, on_error="skip"), 1, 4)
    with pytest.raises(FieldError, match=r"encoded with tokenizer another \(0123\), the stream's is"):
        run.take()


def test_what_needs_texts_is_refused_before_anything_is_read(
    tmp_path: Path, tokenizer: Any, tokens: dict[str, Any]
) -> None:
    write_corpus("jsonl", tmp_path / "text", TEXTS)
    convert(tmp_path / "text", tmp_path / "tokens", "tokens", **tokens)
    source = Source(str(tmp_path / "tokens"))
    with pytest.raises(ConfigError, match="PromptCompletion needs texts: only Lm"):
        Run.start(stream_of(source, tokenizer, objective=PromptCompletion()), 1, 4)
    with pytest.raises(ConfigError, match="a map function would get no text"):
        Run.start(stream_of(replace(source, map=Map(dict)), tokenizer), 1, 4)
    write_shard("jsonl", tmp_path / "tokens" / "more.jsonl", TEXTS)
    with pytest.raises(SourceError, match="holds shards of tokens beside others"):
        Run.start(stream_of(source, tokenizer), 1, 4)
    with pytest.raises(ConfigError, match="a conversion to tokens needs a tokenizer"):
        conversion(tmp_path / "text", tmp_path / "out", "tokens")
    with pytest.raises(ConfigError, match="takes no tokenizer"):
        conversion(tmp_path / "text", tmp_path / "out", "parquet", **tokens)


def test_the_field_of_the_text_is_named(tmp_path: Path, tokens: dict[str, Any]) -> None:
    (tmp_path / "a.jsonl").write_text('{"meta":{"body":"one two"}}\n')
    assert convert(tmp_path / "a.jsonl", tmp_path / "out", "tokens", text="meta.body", **tokens).tokens


def test_a_damaged_batch_says_so_behind_the_documents_before_it(
    tmp_path: Path, tokens: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfeed.convert.tokens.BATCH_TOKENS", 100)
    monkeypatch.setattr("streamfeed.convert.tokens._SLICE", 100)
    write_corpus("jsonl", tmp_path / "text", texts_with_ids(60, words=40))
    convert(tmp_path / "text", tmp_path / "out", "tokens", **tokens)
    path = tmp_path / "out" / "shard-00000.tokens"
    whole = list(make_format("tokens", Shape()).read(shard(path), WHOLE, Cursor()))
    assert len(whole) > 5
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found: list[Chunk] = []
    with pytest.raises(CorruptShardError, match=r"batch \d+"):
        found.extend(make_format("tokens", Shape()).read(shard(path), WHOLE, Cursor()))
    assert 0 < len(found) < len(whole)
    assert [list(chunk.values) for chunk in found] == [list(chunk.values) for chunk in whole[: len(found)]]
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptShardError, match="footer"):
        list(make_format("tokens", Shape()).read(shard(path), WHOLE, Cursor()))


def test_every_cursor_and_every_split_of_tokens_is_exact(tmp_path: Path) -> None:
    path = write_shard("tokens", tmp_path / "a.tokens", TEXTS, parts=9)
    form, file = make_format("tokens", Shape()), shard(path)

    def values(extent: Extent, cursor: Cursor) -> list[object]:
        return [value for chunk in form.read(file, extent, cursor) for value in chunk.values]

    whole = values(WHOLE, Cursor())
    assert [value is None for value in whole] == [text is None for text in TEXTS]
    done = 0
    for chunk in form.read(file, WHOLE, Cursor()):
        for i in range(len(chunk.values) + 1):
            assert values(WHOLE, Cursor(chunk.seek, chunk.skip + i)) == whole[done + i :]
        done += len(chunk.values)
    for size in (1, 500, 1 << 20):
        pieces = form.split(file, size)
        assert pieces is not None
        assert (len(pieces) > 3) is (size < 1 << 20)
        assert [value for piece in pieces for value in values(piece.extent, Cursor())] == whole


def test_how_texts_were_cut_for_the_engine_does_not_show(
    tmp_path: Path, tokens: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus("jsonl", tmp_path / "text", TEXTS, shards=3)
    convert(tmp_path / "text", tmp_path / "a", "tokens", max_records=50, **tokens)
    monkeypatch.setattr("streamfeed.convert.tokens._SLICE", 50)
    convert(tmp_path / "text", tmp_path / "b", "tokens", max_records=50, **tokens)
    assert files(tmp_path / "a") == files(tmp_path / "b")


@given(st.lists(st.integers(0, MOST_IDS - 1)))
def test_ids_come_out_of_their_characters_as_they_went_in(ids: list[int]) -> None:
    text = text_of_ids(np.asarray(ids, dtype=np.uint32))
    assert len(text) == len(ids)
    assert text.encode().decode() == text
    assert ids_of(text).tolist() == ids
