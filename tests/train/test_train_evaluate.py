"""The held-out score over rows from nothing: what it is, when it is made, and that training does not notice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from streamfeed.train import evaluate, loop
from streamfeed.train.cli import plan
from streamfeed.train.metrics import read_metrics
from streamfeed.train.progress import Reporter
from tests.train.fake_stream import ROWS_OF_AN_EPOCH, row

if TYPE_CHECKING:
    from streamfeed.train.job import Job

BASE = """
data: {uri: rows, tokenizer: fake, seq_len: 16}
loader: {batch_size: 2, num_workers: 0}
model: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 32, dropout: 0.2}
train: {global_batch_size: 4, max_steps: 9, lr: 0.01, warmup_steps: 2, checkpoint_every: 3, log_every: 2}
"""
HELD_OUT = ("--eval.uri", "held", "--eval.every", "4")

pytestmark = pytest.mark.usefixtures("fake_rows")


def run(folder: str, *words: str) -> dict[str, Any]:
    resume = "--resume" in words
    settled = plan([*(() if resume else ("--config", "base.yaml")), "--train.output_dir", folder, *words])
    return loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)))


def scores(folder: str) -> list[int]:
    return [line["step"] for line in read_metrics(Path(folder, "metrics.jsonl")) if "eval_loss" in line]


def losses(folder: str) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read_metrics(Path(folder, "metrics.jsonl")) if "loss" in line]


def test_a_score_leaves_no_trace_in_training() -> None:
    run("plain")
    summary = run("scored", *HELD_OUT)
    assert scores("scored") == [4, 8, 9]
    assert dict(losses("plain")).items() <= dict(losses("scored")).items()
    assert summary["loss_end"] == losses("plain")[-1][1]
    plain, scored = (load_file(f"{name}/checkpoints/step-000009/model.safetensors") for name in ("plain", "scored"))
    assert all(torch.equal(plain[name], scored[name]) for name in plain)


def test_the_score_is_the_mean_loss_over_one_pass_without_dropout() -> None:
    from transformers import AutoModelForCausalLM

    summary = run("one", "--eval.uri", "held")
    assert scores("one") == [9]
    model = AutoModelForCausalLM.from_pretrained(summary["checkpoint"]).eval()
    total, labels = 0.0, 0
    with torch.no_grad():
        for g in range(ROWS_OF_AN_EPOCH):
            one = row(g, 16)
            logits = model(
                input_ids=one["input_ids"][None], position_ids=one["position_ids"][None], use_cache=False
            ).logits[0]
            targets = one["labels"][1:]
            total += float(torch.nn.functional.cross_entropy(logits[:-1], targets, reduction="sum"))
            labels += int((targets != -100).sum())
    assert summary["eval_labels"] == labels
    assert summary["eval_loss"] == pytest.approx(total / labels, rel=1e-5)
    assert "eval_accuracy" not in summary


def test_a_resume_repeats_no_score() -> None:
    run("run", *HELD_OUT, "--train.max_steps", "6")
    assert scores("run") == [4, 6]
    again = run("run", "--resume", "latest")
    assert scores("run") == [4, 6]
    assert again["eval_loss"] == read_metrics(Path("run/metrics.jsonl"))[-1]["eval_loss"]
    run("run", "--resume", "latest", "--train.max_steps", "9")
    assert scores("run") == [4, 6, 8, 9]


def test_no_random_number_is_drawn_and_dropout_is_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    score = evaluate.Evaluation.score

    def watched(self: evaluate.Evaluation, job: Job) -> evaluate.Score:
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
        found = score(self, job)
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
        seen.append((before == after, job.model.training))
        return found

    monkeypatch.setattr(evaluate.Evaluation, "score", watched)
    run("run", *HELD_OUT)
    assert seen == [(True, True)] * 3


def test_data_that_is_trained_on_is_not_held_out_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    run("apart", *HELD_OUT)
    assert "held-out" not in caplog.text
    run("same", "--eval.uri", "rows")
    assert caplog.text.count("rows is both eval.uri and trained on: the score is not one of held-out data") == 1
