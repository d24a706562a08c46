"""The oracle of the main job: SIGKILL at any step, resume, and nothing differs from the run that was never killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from streamfeed.train.metrics import read_metrics
from tests.tokenizers_for_tests import standard_library_texts

ROOT = Path(__file__).parent.parent.parent
STEPS = 40
FLAGS = {
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
    "train.max_steps": STEPS,
    "train.warmup_steps": 3,
    "train.checkpoint_every": 4,
    "train.log_every": 1,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    for shard in range(3):
        lines = [json.dumps({"text": text[:600]}) for text in standard_library_texts()[shard::3]]
        (tmp_path / "corpus" / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def start(folder: Path, tokenizer: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "streamfeed.train", f"--data.tokenizer={tokenizer}"]
    command += [f"--{name}={value}" for name, value in FLAGS.items()] + list(words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen[str]) -> None:
    out, _ = process.communicate()
    assert process.returncode == 0, out


def kill_at(process: subprocess.Popen[str], step: int) -> None:
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


@pytest.mark.processes
@pytest.mark.timeout(300)  # four processes that import torch, 12 s when the machine is idle
def test_a_run_killed_twice_and_resumed_equals_the_uninterrupted_one_to_the_bit(
    folder: Path, tokenizer_folder: Path
) -> None:
    chosen = random.Random(20)
    finish(start(folder, tokenizer_folder, "--train.output_dir", "straight"))
    resume = ["--train.output_dir", "killed", "--resume", "latest"]
    kill_at(start(folder, tokenizer_folder, *resume), chosen.randrange(5, 12))
    kill_at(start(folder, tokenizer_folder, *resume, "--loader.num_workers", "0"), chosen.randrange(16, 24))
    finish(start(folder, tokenizer_folder, *resume))

    straight, killed = (
        [(line["step"], line["loss"], line["tokens"]) for line in read_metrics(folder / name / "metrics.jsonl")]
        for name in ("straight", "killed")
    )
    assert [step for step, _, _ in straight] == list(range(1, STEPS + 1))
    assert killed == straight
    one, two = (
        load_file(folder / name / f"checkpoints/step-{STEPS:06d}/model.safetensors") for name in ("straight", "killed")
    )
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
