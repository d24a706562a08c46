"""The main job as a process of its own: started, read line by line, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from streamfeed.train.metrics import read_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FLAGS", "assert_equal_runs", "finish", "kill_at", "start"]

ROOT = Path(__file__).parent.parent.parent
FLAGS: dict[str, object] = {
    "data.uri": "corpus/*.jsonl",
    "data.seq_len": 32,
    "data.shuffle_buffer": 16,
    "loader.batch_size": 2,
    "loader.num_workers": 1,
    "model.hidden_size": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "model.dropout": 0.1,
    "train.global_batch_size": 4,
    "train.max_steps": 40,
    "train.warmup_steps": 3,
    "train.checkpoint_every": 4,
    "train.log_every": 1,
}


def start(
    folder: Path,
    tokenizer: Path,
    *words: str,
    flags: Mapping[str, object] = FLAGS,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start the main job in ``folder``, with what it says in one stream; ``environment`` adds variables."""
    command = [sys.executable, "-m", "streamfeed.train", f"--data.tokenizer={tokenizer}"]
    command += [f"--{name}={value}" for name, value in flags.items()] + list(words)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.Popen(
        command, cwd=folder, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a job that ends with ``code``; return what it said."""
    out, _ = process.communicate()
    assert process.returncode == code, out
    return out


def kill_at(process: subprocess.Popen[str], step: int) -> str:
    """Kill a job as soon as it says that it has made ``step`` steps; return what it said until then."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        found = re.match(r"step (\d+)/", line)
        if found and int(found[1]) >= step:
            break
    else:
        pytest.fail(f"step {step} was never reached:\n{''.join(said)}")
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    return "".join(said)


def assert_equal_runs(one: Path, other: Path, steps: int) -> None:
    """Assert that two runs of ``steps`` steps have the same losses at all of them, and the same weights at the end."""
    curves = [
        [(line["step"], line["loss"], line["tokens"]) for line in read_metrics(run / "metrics.jsonl")]
        for run in (one, other)
    ]
    assert [step for step, _, _ in curves[0]] == list(range(1, steps + 1))
    assert curves[1] == curves[0]
    weights, others = (load_file(run / f"checkpoints/step-{steps:06d}/model.safetensors") for run in (one, other))
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
