"""Resolving: what is found is said once, and nothing found is an error."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.dataset import resolve
from streamfeed.dataset.resolve import Resolved
from streamfeed.errors import ConfigError, SourceError
from tests.corpora import texts_with_ids, write_corpus, write_shard
from tests.streams import corpus, stream

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_found_is_logged_once_a_source(
    tmp_path: Path, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamfeed")
    write_corpus("jsonl", tmp_path / "a", texts_with_ids(30), shards=3)
    write_shard("parquet", tmp_path / "a" / "z.parquet", texts_with_ids(3))
    (tmp_path / "a" / "_SUCCESS").touch()
    (tmp_path / "a" / ".hidden").touch()
    write_corpus("tar", tmp_path / "b", texts_with_ids(5))
    config = replace(
        stream(tmp_path, "jsonl", tokenizer), sources=[Source(str(tmp_path / "a")), Source(str(tmp_path / "b"))]
    )
    resolved = Resolved(config)
    resolved.plan()
    resolved.plan(2)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith(f"{tmp_path / 'a'}: 3 jsonl, 1 parquet, ")
    assert messages[0].endswith(" MB; 2 hidden or marker files ignored")
    assert messages[1].startswith(f"{tmp_path / 'b'}: 1 tar, ")


def test_a_corpus_of_empty_files_is_an_error(tmp_path: Path, tokenizer: Any) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(SourceError, match=r"all 2 shards are empty \(0 bytes\)"):
        Resolved(stream(tmp_path, "jsonl", tokenizer))


def test_an_empty_file_beside_others_is_no_error(tmp_path: Path, tokenizer: Any) -> None:
    (tmp_path / "a.jsonl").touch()
    write_shard("jsonl", tmp_path / "b.jsonl", texts_with_ids(4))
    assert len(Resolved(stream(tmp_path, "jsonl", tokenizer)).plan().sources[0].shards) == 2


def test_a_folder_without_shards_and_a_folder_that_is_not_there_are_errors(tmp_path: Path, tokenizer: Any) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SourceError, match=str(folder)):
            Resolved(stream(folder, "jsonl", tokenizer))


def test_a_states_number_of_lanes_wins_over_the_configs(tmp_path: Path, tokenizer: Any) -> None:
    write_corpus("jsonl", tmp_path, texts_with_ids(30), shards=5)
    resolved = Resolved(stream(tmp_path, "jsonl", tokenizer, lanes=3))
    assert (resolved.plan().lanes, resolved.plan().fingerprint["lanes"]) == (3, 3)
    assert (resolved.plan(2).lanes, resolved.plan(2).fingerprint["lanes"]) == (2, 2)
    assert Resolved(stream(tmp_path, "jsonl", tokenizer, lanes="auto")).plan().lanes == 4


def test_a_shard_without_a_suffix_is_known_by_its_first_bytes(tmp_path: Path, tokenizer: Any) -> None:
    for kind in ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar"):
        write_shard(kind, tmp_path / f"{kind.replace('.', '_')}-shard", texts_with_ids(5))
    shards = Resolved(stream(tmp_path, "jsonl", tokenizer)).plan().sources[0].shards
    assert sorted(shards.kind(index) for index in range(5)) == ["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar"]


def test_a_format_that_there_is_not_is_an_error(tmp_path: Path, tokenizer: Any) -> None:
    write_corpus("jsonl", tmp_path, texts_with_ids(3))
    config = replace(stream(tmp_path, "jsonl", tokenizer), sources=[Source(str(tmp_path), format="xml")])
    with pytest.raises(ConfigError, match="format must be one of"):
        Resolved(config)


def test_a_file_whose_name_is_not_utf_8_is_a_shard_like_any_other(tmp_path: Path, tokenizer: Any) -> None:
    name = os.fsdecode(b"a\xff.jsonl")
    (tmp_path / name).write_bytes(b'{"text": "hello"}\n')
    plan = Resolved(StreamConfig([Source(str(tmp_path))], tokenizer)).plan()
    assert plan.sources[0].shards.url(0) == str(tmp_path / name)


def test_a_path_object_is_a_uri_and_sources_that_are_none_are_an_error(tmp_path: Path, tokenizer: Any) -> None:
    assert Source(tmp_path / "*.jsonl") == Source(f"{tmp_path}/*.jsonl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="takes Source objects"):
        StreamConfig(["data/*.parquet"], tokenizer)  # type: ignore[list-item]


def test_a_plan_that_is_passed_in_saves_the_listing(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path, "jsonl", [9, 9])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2)
    plan = Resolved(config).plan()
    monkeypatch.setattr(resolve, "_look", lambda _: pytest.fail("listed again"))
    given = Resolved(replace(config, epochs=3), plan=plan)
    assert given.plan().fingerprint == plan.fingerprint
    assert given.plan().rules.epochs == 3
    with pytest.raises(ConfigError, match="has 2 lanes, the state 4"):
        given.plan(4)


@pytest.mark.parametrize(
    ("changes", "said"), [({"seed": 5}, "seed"), ({"lanes": 3}, "lanes"), ({"seq_len": 64}, "seq_len")]
)
def test_a_plan_of_another_config_is_refused_with_what_differs(
    tmp_path: Path, tokenizer: Any, changes: dict[str, Any], said: str
) -> None:
    corpus(tmp_path, "jsonl", [9, 9])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2)
    plan = Resolved(config).plan()
    with pytest.raises(ConfigError, match=f"another config:\n  {said}: .* in the plan, .* now"):
        Resolved(replace(config, **changes), plan=plan)
    other = [*config.sources, *config.sources]
    with pytest.raises(ConfigError, match="another config"):
        Resolved(replace(config, sources=other), plan=plan)


@pytest.mark.parametrize("changes", [{"uri": "elsewhere/*.jsonl"}, {"format": "lines"}])
def test_a_plan_of_other_shards_is_refused_though_all_settings_are_the_same(
    tmp_path: Path, tokenizer: Any, changes: dict[str, Any]
) -> None:
    corpus(tmp_path, "jsonl", [9, 9])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2)
    plan = Resolved(config).plan()
    other = replace(config, sources=[replace(config.sources[0], **changes)])
    with pytest.raises(ConfigError, match=r"another config:\n  source 0: .* in the plan, .*(elsewhere|lines).* now"):
        Resolved(other, plan=plan)
