"""Holding out a part of the data: the settings, and what training and the score are given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from streamfeed import HoldOut
from streamfeed.cli.inspect import inspect
from streamfeed.train.cli import main
from streamfeed.train.flags import Arguments, parse, to_yaml
from streamfeed.train.metrics import read_metrics
from tests.corpora import texts_with_ids, write_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.train.config import RunConfig

DATA = ("--data.uri", "x.jsonl", "--data.tokenizer", "gpt2")


def read(*words: str) -> RunConfig:
    return parse(Arguments.split(list(words)))


def write(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text)
    return str(path)


def test_what_eval_holds_out_is_scored_and_the_rest_is_trained_on(tmp_path: Path) -> None:
    words = [*DATA, "--data.lanes", "7", "--eval.hold_out", "0.01", "--eval.hold_out_by", "key:meta.url"]
    config = read(*words, "--eval.hold_out_seed", "3")
    assert config.stream() == replace(config.data.stream(), hold_out=HoldOut(0.01, "key:meta.url", 3))
    assert config.eval_stream() == config.stream().held_out()
    assert config.eval.also_trained_on(config.data) == []
    assert read(*DATA).stream().hold_out is None
    assert read(*DATA, "--eval.uri", "held").stream().hold_out is None
    assert read("--config", write(tmp_path, to_yaml(config))) == config


TINY = ("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2", "--loader.num_workers", "0")
ROWS = ("--data.seq_len", "32", "--loader.batch_size", "2", "--data.epochs", "1", "--train.lr_schedule", "constant")


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: Path) -> list[str]:
    """The flags of a short run on a corpus of 200 records."""
    folder = tmp_path_factory.mktemp("data") / "corpus"
    write_corpus("jsonl", folder, texts_with_ids(200), shards=4)
    return ["--data.uri", str(folder), "--data.tokenizer", str(tokenizer_folder), *TINY, *ROWS]


@pytest.fixture
def here(flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_engine: None) -> Iterator[list[str]]:
    """A working folder, and the flags."""
    monkeypatch.chdir(tmp_path)
    yield flags
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def labels_of_all(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many labels a run has that holds nothing out."""
    folder = str(tmp_path_factory.mktemp("all") / "run")
    assert main([*flags, "--train.output_dir", folder]) == 0
    torch.use_deterministic_algorithms(False)
    return int(summary(folder)["tokens"])


def summary(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


@pytest.mark.parametrize("by", ["text", "key:id", "shard"])
def test_a_run_trains_on_the_rest_scores_the_part_and_goes_on_so_after_a_stop(
    by: str, here: list[str], labels_of_all: int
) -> None:
    words = [
        *here,
        "--eval.hold_out",
        "0.3",
        "--eval.hold_out_by",
        by,
        "--eval.every",
        "20",
        "--eval.hold_out_seed",
        "1",
    ]
    assert main([*words, "--train.output_dir", "whole"]) == 0
    whole = summary("whole")
    # Every token has a label but the first of each piece, so that the labels of the two parts are about those of all.
    assert whole["tokens"] + whole["eval_labels"] == pytest.approx(labels_of_all, rel=0.02)
    assert min(whole["tokens"], whole["eval_labels"]) > 500
    assert ("left to the other part of the hold-out" in whole["noted"]) is (by != "shard")
    assert "hold-out" not in whole["not_trained_on"]
    assert main([*words, "--train.output_dir", "parts", "--train.max_steps", "25"]) == 0
    assert main(["--resume", "parts", "--train.max_steps", "1000"]) == 0
    figures = [
        [(line["step"], line[name]) for line in read_metrics(Path(folder, "metrics.jsonl")) if name in line]
        for folder in ("whole", "parts")
        for name in ("loss", "eval_loss")
    ]
    assert figures[1][:1] == figures[3][:1]
    assert figures[0][-1] == figures[2][-1]
    assert summary("parts")["eval_loss"] == whole["eval_loss"]


def test_a_resume_that_holds_out_something_else_is_refused(here: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = [*here, "--eval.hold_out", "0.3", "--train.output_dir", "run", "--train.max_steps", "3"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["--resume", "run", "--train.max_steps", "9", "--eval.hold_out", "0.1"]) != 0
    assert "hold_out.share: 0.3 in the state, 0.1 now" in " ".join("".join(capsys.readouterr()).split())


def test_inspect_shows_what_is_trained_on(here: list[str]) -> None:
    shown = [inspect(read(*here, *words), 10_000) for words in ((), ("--eval.hold_out", "0.3"))]
    assert shown[0].counts["records"] == shown[1].counts["records"] == 200
    assert "held_out" not in shown[0].counts
    assert 40 < shown[1].counts["held_out"] < 80
    assert shown[1].counts["tokens"] < shown[0].counts["tokens"] * 0.85
