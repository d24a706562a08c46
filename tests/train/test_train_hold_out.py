"""Holding out a part of the data: the settings, and what training and the score are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streamfeed import HoldOut
from streamfeed.train.flags import Arguments, parse, to_yaml

if TYPE_CHECKING:
    from pathlib import Path

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
