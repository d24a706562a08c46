"""The main job as a process of its own: started, read line by line, killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from streamfeed.train.metrics import read_metrics
from tests.streams import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.distributed.pool import RankPool

__all__ = ["FLAGS", "Running", "assert_equal_runs", "finish", "fork", "kill_at", "start"]

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


@dataclass(frozen=True)
class Running:
    """A job at work: what it says, how to kill it, and how it has ended: its exit code, or minus a signal."""

    said: IO[str]
    kill: Callable[[], object]
    ended: Callable[[], int]


def start(
    folder: Path,
    tokenizer: Path,
    *words: str,
    flags: Mapping[str, object] = FLAGS,
    environment: Mapping[str, str] | None = None,
) -> Running:
    """Start the main job in ``folder``, as users do, which takes seconds; ``environment`` adds variables."""
    command = [sys.executable, "-m", "streamfeed.train", *_words(tokenizer, flags, words)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **_variables(environment)}
    process = subprocess.Popen(
        command, cwd=folder, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    return Running(process.stdout, process.kill, process.wait)


def fork(
    pool: RankPool,
    folder: Path,
    tokenizer: Path,
    *words: str,
    flags: Mapping[str, object] = FLAGS,
    environment: Mapping[str, str] | None = None,
) -> Running:
    """Start the main job in ``folder`` as a process of the pool, which has imported what takes seconds."""
    arguments = {"folder": str(folder), "words": _words(tokenizer, flags, words)}
    place = Path(tempfile.mkdtemp(prefix="job-", dir=folder)) / "process"
    job = pool.start_alone(place, "tests.distributed.training:run", arguments, _variables(environment))

    def ended() -> int:
        (code,) = job.codes()
        result = place / "rank-0.json"
        return int(json.loads(result.read_text())) if result.exists() else code

    return Running((place / "rank-0.log").open(), partial(job.kill, 0), ended)


def _variables(more: Mapping[str, str] | None) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(CACHE), **(more or {})}


def _words(tokenizer: Path, flags: Mapping[str, object], words: tuple[str, ...]) -> list[str]:
    return [f"--data.tokenizer={tokenizer}", *(f"--{name}={value}" for name, value in flags.items()), *words]


def finish(job: Running, code: int = 0) -> str:
    """Wait for a job that ends with ``code``; return what it said."""
    said = job.said.read()
    assert job.ended() == code, said
    return said


def kill_at(job: Running, step: int) -> str:
    """Kill a job as soon as it says that it has made ``step`` steps; return what it said until then."""
    said = []
    for line in job.said:
        said.append(line)
        found = re.match(r"step (\d+)/", line)
        if found and int(found[1]) >= step:
            break
    else:
        pytest.fail(f"step {step} was never reached:\n{''.join(said)}")
    job.kill()
    job.said.close()
    assert job.ended() == -signal.SIGKILL
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
