"""A classifier end to end: sentence pairs in one Parquet file, through the main job, to a held-out score."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.train.metrics import read_metrics
from tests.tokenizers_for_tests import build_bert
from tests.train.jobs import finish, start

if TYPE_CHECKING:
    from pathlib import Path

KEYS = ["buffer", "class", "command", "compile"]
FILLERS = ["action", "also", "before", "best", "block", "break", "cache", "call"]
FLAGS: dict[str, object] = {
    "data.uri": "train.parquet",
    "data.text": "sentence1",
    "data.objective": "classification",
    "data.classification.text_pair": "sentence2",
    "data.classification.classes": 2,
    "data.packing": "none",
    "data.seq_len": 32,
    "loader.batch_size": 32,
    "loader.num_workers": 0,
    "model.hidden_size": 64,
    "model.num_layers": 2,
    "model.num_heads": 4,
    "train.max_steps": 300,
    "train.lr": 2e-3,
    "train.warmup_steps": 30,
    "train.log_every": 50,
    "eval.uri": "held_out.parquet",
}


def write_pairs(path: Path, rows: int, seed: int) -> None:
    """Write sentence pairs in the shape of GLUE's MRPC, one row group; a pair is the same where its key words are."""
    draw = np.random.default_rng(seed)

    def sentence(key: str) -> str:
        words = draw.choice(FILLERS, int(draw.integers(2, 6))).tolist()
        words.insert(int(draw.integers(0, len(words) + 1)), key)
        return " ".join(words)

    labels = draw.integers(0, 2, rows)
    first = draw.integers(0, len(KEYS), rows)
    second = np.where(labels == 1, first, (first + draw.integers(1, len(KEYS), rows)) % len(KEYS))
    table = pa.table(
        {
            "sentence1": [sentence(KEYS[key]) for key in first],
            "sentence2": [sentence(KEYS[key]) for key in second],
            "label": labels,
            "idx": np.arange(rows),
        }
    )
    pq.write_table(table, path, row_group_size=rows)


@pytest.mark.processes
@pytest.mark.timeout(300)  # 20 s on a core of its own
def test_a_classifier_learns_a_rule_of_sentence_pairs_better_than_chance(tmp_path: Path) -> None:
    write_pairs(tmp_path / "train.parquet", 3700, seed=0)
    write_pairs(tmp_path / "held_out.parquet", 500, seed=1)
    tokenizer = build_bert(tmp_path / "bert")
    said = finish(start(tmp_path, tokenizer, "--train.output_dir=run", flags=FLAGS))
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["eval_labels"] == 500
    assert summary["eval_accuracy"] > 0.65, "chance is 0.5"
    assert f"accuracy {summary['eval_accuracy']:.4f} on 500 samples" in said
    assert summary["tokens"] == 300 * 32, "labels are samples"
    last = read_metrics(tmp_path / "run/metrics.jsonl")[-1]
    assert (last["step"], last["eval_accuracy"]) == (300, summary["eval_accuracy"])
    config = json.loads((tmp_path / "run/checkpoints/step-000300/config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
