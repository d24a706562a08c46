"""A tokenizer's spec from another process, and kept: the same as one loaded here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from streamfeed.encode import child
from streamfeed.encode import spec as module
from streamfeed.encode.spec import tokenizer_spec
from streamfeed.encode.tokenizer import TokenizerSpec, load_tokenizer
from streamfeed.errors import ConfigError
from tests.encode.tokenizer_kinds import spec_of

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from streamfeed.encode.spec import tokenizer_spec
found = [asdict(tokenizer_spec(sys.argv[1], Path(sys.argv[2]))) for _ in range(2)]
assert found[0] == found[1]
print(json.dumps([found[0], "transformers" in sys.modules]))
"""


@pytest.mark.processes
def test_a_folder_is_loaded_without_importing_transformers_here(tokenizer_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(tokenizer_folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, imported = json.loads(done.stdout)
    expected = load_tokenizer(tokenizer_folder)
    assert TokenizerSpec(**found) == expected
    assert not imported
    assert len(list((tmp_path / "tokenizers").iterdir())) == 1


@pytest.mark.processes
def test_what_is_wrong_with_a_tokenizer_is_said_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError) as here:
        tokenizer_spec(tmp_path / "tokenizer.json", None)
    monkeypatch.delitem(sys.modules, "transformers")
    with pytest.raises(ConfigError) as elsewhere:
        tokenizer_spec(tmp_path / "tokenizer.json", None)
    assert str(here.value) == str(elsewhere.value)


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every name that is loaded."""
    found: list[object] = []
    spec = spec_of("gpt2_bpe")  # which imports transformers, so that nothing is loaded elsewhere

    def load(name: object) -> TokenizerSpec:
        found.append(name)
        return spec

    monkeypatch.setattr(module, "load_tokenizer", load)
    return found


def test_what_is_kept_is_used_until_a_file_of_the_folder_changes(
    tokenizer_folder: Path, tmp_path: Path, loads: list[object]
) -> None:
    folder = copied(tokenizer_folder, tmp_path / "tokenizer")
    specs = [tokenizer_spec(folder, tmp_path / "cache") for _ in range(3)]
    assert specs == [spec_of("gpt2_bpe")] * 3
    assert len(loads) == 1
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text() + "\n")
    tokenizer_spec(folder, tmp_path / "cache")
    assert len(loads) == 2
    for path in (tmp_path / "cache" / "tokenizers").iterdir():
        path.write_text("{")
    tokenizer_spec(folder, tmp_path / "cache")
    assert len(loads) == 3, "what cannot be read is loaded again"
    tokenizer_spec(folder, None)
    assert len(loads) == 4


def test_a_name_that_is_no_path_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_tokenizer", lambda _: spec_of("gpt2_bpe"))
    tokenizer_spec("an/organisation", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_too_large_to_read_counts_by_its_size_and_time(
    tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: list[object]
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 100)
    folder = copied(tokenizer_folder, tmp_path / "tokenizer")
    for _ in range(2):
        tokenizer_spec(folder, tmp_path / "cache")
    assert len(loads) == 1
    large = folder / "tokenizer.json"
    text = large.read_text(encoding="utf-8")
    assert len(text) > 100
    large.write_text(text[:-1] + " ", encoding="utf-8")
    os.utime(large, (1, 1))
    tokenizer_spec(folder, tmp_path / "cache")
    assert len(loads) == 2


def test_a_file_alone_is_kept_whatever_lies_beside_it(tmp_path: Path, loads: list[object]) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    tokenizer_spec(tmp_path / "tokenizer.json", tmp_path / "cache")
    (tmp_path / "shard.jsonl").write_text("x", encoding="utf-8")
    tokenizer_spec(tmp_path / "tokenizer.json", tmp_path / "cache")
    assert len(loads) == 1
    (tmp_path / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    tokenizer_spec(tmp_path / "tokenizer.json", tmp_path / "cache")
    assert len(loads) == 2, "now the file means its folder"


def test_a_folder_that_holds_a_corpus_is_not_read_to_know_it_again(
    tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: list[object]
) -> None:
    monkeypatch.setattr(module, "_MOST_READ", 1000)
    for _ in range(2):
        tokenizer_spec(tokenizer_folder, tmp_path)
    assert len(loads) == 2
    assert not list(tmp_path.iterdir())


def test_a_load_that_takes_too_long_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    monkeypatch.setattr(child, "_START", "import threading; threading.Event().wait()")
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.2)
    with pytest.raises(ConfigError, match=r"took over 0\.2 s"):
        tokenizer_spec("an/organisation", None)
