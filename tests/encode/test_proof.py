from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from streamfeed.encode import child, proof, trial
from streamfeed.encode.adversarial import documents
from streamfeed.encode.engines import build_engine
from streamfeed.encode.fast import FastokensEngine
from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.proof import Verdict, default_cache_dir, disprove, prove
from streamfeed.encode.protocol import Encoded
from streamfeed.encode.trial import compare, encode_in_batches
from tests.encode.tokenizer_kinds import KINDS, spec_of

UNSUPPORTED = {"metaspace_bpe", "word_piece", "unigram"}
DIFFERENT = {"stripping_bpe", "deepseek_bpe"}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - UNSUPPORTED - DIFFERENT - {"llama3_bpe"}))
def test_a_kind_that_is_accepted_gives_equal_ids_on_the_short_part_of_the_set(kind: str) -> None:
    spec = spec_of(kind)
    texts = [text for text in documents(spec.json) if len(text) < 8_000]
    fast = encode_in_batches(FastokensEngine(spec.json, spec.frame).encode, texts)
    assert compare(texts, fast, encode_in_batches(HuggingFaceEngine(spec.json, spec.frame).encode, texts)) == ""


@pytest.mark.processes
def test_an_equal_engine_is_proven_once_and_then_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("llama3_bpe")
    verdict = prove(spec, tmp_path)
    assert verdict.engine == "fastokens"
    assert "equal to Hugging Face on" in verdict.reason
    monkeypatch.setattr(proof, "_decide", _never)
    assert prove(spec, tmp_path) == verdict


@pytest.mark.processes
@pytest.mark.parametrize("kind", sorted(UNSUPPORTED))
def test_a_tokenizer_that_fastokens_cannot_build_gets_hugging_face(kind: str) -> None:
    verdict = prove(spec_of(kind), None)
    assert verdict.engine == "huggingface"
    assert "fastokens cannot run this tokenizer: ValueError" in verdict.reason


@pytest.mark.processes
def test_a_tokenizer_whose_ids_differ_gets_hugging_face_with_the_difference(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "streamfeed.encode"):
        verdict = prove(spec_of("stripping_bpe"), None)
    assert verdict.engine == "huggingface"
    assert "ids differ from index" in verdict.reason
    assert verdict.reason in caplog.text


def test_spaces_before_a_character_that_no_pattern_matches_are_found_different_by_the_short_part() -> None:
    spec = spec_of("deepseek_bpe")
    texts = [text for text in documents(spec.json) if "\u180e" in text and len(text) < 30_000]
    fast = encode_in_batches(FastokensEngine(spec.json, spec.frame).encode, texts)
    odd = ["  \u180e"]
    assert (
        FastokensEngine(spec.json, spec.frame).encode(odd).ids.tolist()
        != HuggingFaceEngine(spec.json, spec.frame).encode(odd).ids.tolist()
    )
    assert "ids differ" in compare(
        texts, fast, encode_in_batches(HuggingFaceEngine(spec.json, spec.frame).encode, texts)
    )


def test_an_engine_that_is_wrong_in_one_id_of_one_text_is_found() -> None:
    spec = spec_of("gpt2_bpe")
    texts = ["a b c", "import os", "x" * 50]
    right = HuggingFaceEngine(spec.json, spec.frame).encode(texts)
    ids = right.ids.copy()
    ids[right.offsets[1]] += 1
    assert compare(texts, right, right) == ""
    assert "text 1 of the adversarial set: ids differ from index 0" in compare(
        texts, Encoded(ids, right.offsets), right
    )
    assert "2 results for 3 texts" in compare(texts, Encoded(right.ids, right.offsets[:-1]), right)


def test_a_wrong_engine_is_refused_by_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("gpt2_bpe")
    texts = ["a b", "", "import os\n" * 40]
    monkeypatch.setattr(trial, "documents", lambda _: texts)
    (tmp_path / "tokenizer.json").write_text(spec.json, encoding="utf-8")
    (tmp_path / "frame.json").write_text(json.dumps({"bos": spec.bos_id, "eos": spec.eos_id}), encoding="utf-8")
    right = HuggingFaceEngine(spec.json, spec.frame).encode(texts)
    for name, ids in (("good", right.ids), ("bad", right.ids + np.int32(1))):
        np.savez(tmp_path / f"{name}.npz", ids=ids, offsets=right.offsets)
        trial.main(["reference", str(tmp_path), name])
        found = json.loads((tmp_path / "reference.json").read_text())
        assert bool(found["problem"]) == (name == "bad"), found


@pytest.mark.processes
def test_an_engine_that_kills_its_process_is_not_used_and_tried_again_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_START", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    verdict = prove(spec_of("gpt2_bpe"), tmp_path)
    assert verdict.engine == "huggingface"
    assert "died with exit code -11" in verdict.reason
    assert list(tmp_path.iterdir()) == []


def test_a_mismatch_while_running_makes_the_next_start_use_hugging_face(tmp_path: Path) -> None:
    spec = spec_of("gpt2_bpe")
    disprove(spec, tmp_path, "ids differ from index 7 on")
    verdict = prove(spec, tmp_path)
    assert verdict == Verdict("huggingface", "fastokens gave other ids in an earlier run: ids differ from index 7 on")
    assert build_engine(spec, verdict).name == "huggingface"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"engine": "other", "reason": "", "versions": {}}', "\x00"])
def test_a_cache_that_cannot_be_read_is_proven_again(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of("gpt2_bpe")
    disprove(spec, tmp_path, "old")
    (entry,) = (tmp_path / "engines").iterdir()
    entry.write_text(content, encoding="utf-8")
    monkeypatch.setattr(proof, "_decide", lambda _: Verdict("fastokens", "proven again"))
    assert prove(spec, tmp_path).reason == "proven again"
    assert [path.name for path in (tmp_path / "engines").iterdir()] == [entry.name]
    assert json.loads(entry.read_text())["reason"] == "proven again"


def test_another_version_or_tokenizer_is_proven_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("gpt2_bpe")
    disprove(spec, tmp_path, "old")
    monkeypatch.setattr(proof, "_decide", lambda _: Verdict("fastokens", "proven"))
    assert prove(replace(spec, fingerprint="0" * 32), tmp_path).engine == "fastokens"
    assert prove(spec, tmp_path).engine == "huggingface"
    monkeypatch.setattr(proof, "SET_VERSION", 0)
    assert prove(spec, tmp_path).engine == "fastokens"


def test_provers_at_the_same_time_leave_one_whole_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_decide", lambda _: Verdict("fastokens", "x" * 10_000))
    threads = [Thread(target=prove, args=(spec_of("gpt2_bpe"), tmp_path)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    (entry,) = (tmp_path / "engines").iterdir()
    assert json.loads(entry.read_text())["engine"] == "fastokens"


def test_a_cache_that_cannot_be_written_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proof, "_decide", lambda _: Verdict("fastokens", "proven"))
    (tmp_path / "file").write_text("")
    assert prove(spec_of("gpt2_bpe"), tmp_path / "file").engine == "fastokens"
    assert "cannot keep the verdict" in caplog.text


def test_the_cache_is_where_xdg_says() -> None:
    assert default_cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/streamfeed")
    assert default_cache_dir({}) == Path("~/.cache/streamfeed").expanduser()


def _never(_: object) -> Verdict:
    raise AssertionError("proved again in spite of the cache")
