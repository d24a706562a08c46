"""A classifier end to end: sentence pairs in one Parquet file, through the main job, to a held-out score."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfeed.train.metrics import read_metrics
from tests.tokenizers_for_tests import build_bert
from tests.train.jobs import finish, fork

if TYPE_CHECKING:
    from tests.distributed.pool import RankPool

KEYS = ["buffer", "class", "command", "compile"]
FILLERS = ["action", "also", "before", "best", "block", "break", "cache", "call"]
README = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")


def command() -> list[str]:
    """Return the flags of the README's command."""
    commands = re.findall(r"^python -m streamfeed\.train (.*)$", README.replace("\\\n", ""), re.MULTILINE)
    (words,) = [words for words in commands if "objective classification" in words]
    return shlex.split(words)


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
@pytest.mark.timeout(300)  # half a minute on a core of its own
def test_the_command_of_the_readme_learns_a_rule_of_sentence_pairs(tmp_path: Path, rank_pool: RankPool) -> None:
    (tmp_path / "pairs").mkdir()
    write_pairs(tmp_path / "pairs/train.parquet", 3700, seed=0)
    write_pairs(tmp_path / "pairs/held_out.parquet", 500, seed=1)
    tokenizer = build_bert(tmp_path / "bert")
    said = finish(fork(rank_pool, tmp_path, tokenizer, *command(), "--loader.num_workers=0", flags={}))
    summary = json.loads((tmp_path / "runs/pairs/summary.json").read_text())
    assert summary["eval_labels"] == 500
    assert summary["eval_accuracy"] > 0.65, "chance is 0.5"
    assert f"accuracy {summary['eval_accuracy']:.4f} on 500 samples" in said
    assert summary["tokens"] == 300 * 32, "labels are samples"
    lines = [line for line in read_metrics(tmp_path / "runs/pairs/metrics.jsonl") if "eval_loss" in line]
    assert [line["step"] for line in lines] == [100, 200, 300]
    assert lines[-1]["eval_accuracy"] == summary["eval_accuracy"]
    config = json.loads((tmp_path / "runs/pairs/checkpoints/step-000300/config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
