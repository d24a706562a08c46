"""Kills training again and again, and shows that the end is the one of a run that was never killed.

    python scripts/kill_training.py                 # 30 kills: 20 of a run on two ranks, 10 of one that changes them
    python scripts/kill_training.py --kills 6       # fewer, in the same shares
    python scripts/kill_training.py --folder DIR    # keep the runs

Each run is `torchrun -m streamfeed.train` on the demo's shards. SIGKILL goes to all of its processes: at a random time
after the start, start-up included, and at every third kill in a save, as soon as the temporary folder of a checkpoint
is there. Then the run is resumed. What was killed and resumed on two ranks must end with the parameters of the
uninterrupted run to the bit, what went on on one, two and four ranks to float tolerance, and both with the same number
of labels at every step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch
from safetensors.torch import load_file

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 300
EVERY = 10
FLAGS: dict[str, object] = {
    "data.uri": "shards/demo/*.parquet",
    "data.tokenizer": "shards/demo/tokenizer",
    "data.seq_len": 64,
    "data.shuffle_buffer": 256,
    "loader.num_workers": 1,
    "model.hidden_size": 32,
    "model.num_layers": 2,
    "model.num_heads": 2,
    "train.global_batch_size": 8,
    "train.max_steps": STEPS,
    "train.lr": 1e-3,
    "train.warmup_steps": 5,
    "train.checkpoint_every": EVERY,
    "train.keep_checkpoints": 3,
    "train.log_every": 1,
}
TOLERANCE = 1e-3
"""Of the largest parameter: sums over ranks round otherwise, and Adam divides by small numbers."""


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="streamfeed-kills-") as name:
        folder = arguments.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        from streamfeed.train.demo import prepare

        prepare(print)
        chosen = random.Random(arguments.seed)
        print("the uninterrupted run, on two ranks", flush=True)
        seconds = finish("straight", 2)
        same = 2 * arguments.kills // 3
        begin = time.monotonic()
        count = kill_and_resume("killed", same, iter(lambda: 2, 0), chosen, seconds)
        count += kill_and_resume("elastic", arguments.kills - same, ranks_in_turn(), chosen, seconds)
        print(f"{count} kills in {time.monotonic() - begin:.0f} s")
        ok = compare("killed", 0.0) & compare("elastic", TOLERANCE)
    sys.exit(0 if ok else 1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


def ranks_in_turn() -> Iterator[int]:
    while True:
        yield from (2, 1, 4)


def start(run: str, ranks: int) -> subprocess.Popen[bytes]:
    """Start, or resume, the run on ``ranks`` ranks, in a process group of its own; what it says goes to a file."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["-m", "streamfeed.train", f"--train.output_dir={run}", "--resume=latest"]
    command += [f"--{name}={value}" for name, value in FLAGS.items()]
    command += [f"--loader.batch_size={4 // ranks if ranks < 4 else 2}"]
    with Path(f"{run}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )


def finish(run: str, ranks: int) -> float:
    """Run to the end; return the seconds that it took."""
    begin = time.monotonic()
    code = start(run, ranks).wait()
    if code:
        raise SystemExit(f"{run} ended with {code}:\n{Path(f'{run}.log').read_text()[-3000:]}")
    return time.monotonic() - begin


def kill_and_resume(run: str, kills: int, ranks: Iterator[int], chosen: random.Random, seconds: float) -> int:
    """Kill ``run`` so many times, resume it each time, and bring it to its end; return the kills that hit."""
    done = 0
    while done < kills:
        count = next(ranks)
        process = start(run, count)
        in_save = done % 3 == 2
        when = wait_for_save(process, run) if in_save else wait_some(process, chosen.uniform(0.1, 1.1) * seconds)
        if process.poll() is not None:
            if process.returncode:
                raise SystemExit(f"{run} ended with {process.returncode}:\n{Path(f'{run}.log').read_text()[-3000:]}")
            print(f"  {run}: ended before it was killed; it begins again", flush=True)
            begin_again(run)
            continue
        kill(process)
        done += 1
        print(f"  {run}: kill {done} on {count} rank(s) {when}, at step {last_step(run)}", flush=True)
    finish(run, 2)
    return done


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the launcher, its ranks and their workers by SIGKILL."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()
    psutil.wait_procs(family, 10)


def wait_some(process: subprocess.Popen[bytes], seconds: float) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return f"after {seconds:.1f} s"


def wait_for_save(process: subprocess.Popen[bytes], run: str) -> str:
    """Wait until a checkpoint is being written: of a later step than the half-written one of an earlier kill."""
    checkpoints = Path(run, "checkpoints")
    stale = set(checkpoints.glob(".writing-*"))
    begun = {path: path.stat().st_ino for path in stale}
    while process.poll() is None:
        for path in checkpoints.glob(".writing-*"):
            try:
                if begun.get(path) != path.stat().st_ino:
                    return "in a save"
            except FileNotFoundError:
                continue
        time.sleep(0.0005)
    return ""


def begin_again(run: str) -> None:
    """Put a run that has ended back to an early checkpoint: the next kills have something to hit."""
    steps = sorted(Path(run, "checkpoints").glob("step-*"))
    for path in steps[1:]:
        path.rename(path.with_name(f"old-{time.monotonic_ns()}-{path.name}"))


def last_step(run: str) -> int:
    metrics = Path(run, "metrics.jsonl")
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def compare(run: str, tolerance: float) -> bool:
    """Say how far the parameters of ``run`` are from the uninterrupted run's, and whether that is near enough."""
    name = f"checkpoints/step-{STEPS:06d}/model.safetensors"
    straight, other = load_file(Path("straight", name)), load_file(Path(run, name))
    largest = max(float(one.abs().max()) for one in straight.values())
    apart = max(float((other[key] - one).abs().max()) for key, one in straight.items()) / largest
    equal = straight.keys() == other.keys() and all(torch.equal(one, other[key]) for key, one in straight.items())
    labels = tokens("straight") == tokens(run)
    print(
        f"{run}: parameters {'equal to the bit' if equal else f'apart by {apart:.1e} of the largest'}, "
        f"labels of every step {'equal' if labels else 'NOT equal'}"
    )
    return labels and (equal if tolerance == 0.0 else apart <= tolerance)


def tokens(run: str) -> list[tuple[int, int]]:
    lines = (json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["tokens"]) for line in lines if "loss" in line]


if __name__ == "__main__":
    main()
