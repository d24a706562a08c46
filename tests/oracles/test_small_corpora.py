"""Small and empty corpora: they work without a warning, or say that they hold nothing."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.errors import CorruptShardError, EmptyStreamError, SourceError
from tests.corpora import FIELDS, FORCED, KINDS, NO_NULLS, id_of, texts_with_ids, write_shard
from tests.streams import CACHE, InProcessLoader, lane_tokens, stream, take

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.mark.parametrize("kind", KINDS)
def test_null_and_empty_texts_are_dropped_and_counted(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    texts = texts_with_ids(40)
    for index in (0, 1, 7, 39):
        texts[index] = None
    for index in (2, 20, 21):
        texts[index] = ""
    write_shard(kind, tmp_path / f"a.{kind}", texts)
    for lanes, batch_size in ((1, 2), (2, 2), (5, 2), (5, 1)):
        config = stream(tmp_path, kind, tokenizer, lanes=lanes, epochs=1, shuffle_buffer=10)
        loader = InProcessLoader(config, batch_size, cache_dir=CACHE)
        tokens = lane_tokens([take(loader)], lanes)
        found = [id_of(text) for lane in tokens for text in tokenizer.decode(lane).split(tokenizer.eos_token) if text]
        assert sorted(found) == [index for index, text in enumerate(texts) if text]
        tally = loader.report().tally
        null = 0 if kind in NO_NULLS else 4
        assert (tally.records, tally.null, tally.empty, tally.skipped) == (40, null, 7 - null, 0)
        assert ("4 null, 3 empty" if null else "7 empty") in loader.report().summary()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epochs", [None, 1, 2])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_corpus_of_nulls_is_an_error_and_not_an_endless_search(
    kind: str, epochs: int | None, lanes: int, tmp_path: Path, tokenizer: Any
) -> None:
    write_shard(kind, tmp_path / f"a.{kind}", [None, None, "", None])
    loader = InProcessLoader(
        stream(tmp_path, kind, tokenizer, epochs=epochs, lanes=lanes), 2, workers=2, cache_dir=CACHE
    )
    with pytest.raises(EmptyStreamError, match=r"records were read.* (null|empty)"):
        take(loader, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_without_records_is_an_error(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    write_shard(kind, tmp_path / f"a.{kind}", [], parts=1)
    with pytest.raises((EmptyStreamError, SourceError, CorruptShardError), match=r"a\.|no row|all 1 shards are empty"):
        take(InProcessLoader(stream(tmp_path, kind, tokenizer), 2, cache_dir=CACHE), 5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_file_is_an_error(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    (tmp_path / f"a.{kind}").touch()
    with pytest.raises(SourceError, match="empty"):
        take(InProcessLoader(stream(tmp_path, kind, tokenizer), 2, cache_dir=CACHE), 5)


SMALL = [*((kind, 10) for kind in KINDS), ("parquet", 3000), ("jsonl", 3000)]


@pytest.mark.parametrize(("kind", "count"), SMALL)
@pytest.mark.parametrize("epochs", [None, 1])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_small_corpus_with_default_settings_works_without_a_warning(
    kind: str,
    count: int,
    epochs: int | None,
    workers: int,
    tmp_path: Path,
    tokenizer: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_shard(kind, tmp_path / f"a.{kind}", texts_with_ids(count), parts=1)
    config = StreamConfig([Source(str(tmp_path), FIELDS[kind], FORCED.get(kind))], tokenizer, epochs=epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = InProcessLoader(config, 2, workers=workers, cache_dir=CACHE)
        batches = take(loader, 8 if epochs is None else None)
    assert loader.plan.lanes == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    decoded = tokenizer.decode(lane_tokens([batches], 1)[0]).split(tokenizer.eos_token)
    found = [id_of(text) for text in decoded[:-1] if text]
    if epochs is None:
        assert len(batches) == 8
        assert len(set(found[:count])) == len(found[:count]), "the first epoch has every record at most once"
    else:
        assert sorted(found) == list(range(count))
