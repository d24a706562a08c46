"""Figures on the screen and in ``metrics.jsonl``, and the summary of a run."""

from __future__ import annotations

import math
import shlex
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from streamfeed.errors import StreamfeedError
from streamfeed.stats import Tally
from streamfeed.train.atomic import write_file
from streamfeed.train.metrics import read_metrics
from streamfeed.train.parallel import norm_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from streamfeed.loader.bottleneck import Watch
    from streamfeed.loader.profile import Profile
    from streamfeed.loader.report import Report
    from streamfeed.train.checkpoint import Checkpoint
    from streamfeed.train.evaluate import Evaluation
    from streamfeed.train.job import Job
    from streamfeed.train.metrics import Meter, MetricsLog
    from streamfeed.train.progress import Reporter

__all__ = ["Log", "resume_command", "speed_of", "summary_of", "write_profile"]

TOO_MUCH_PCT = 5.0
"""Per cent of the time spent waiting for data above which it is said what holds training up."""


@dataclass
class Log:
    """What is noted of every step; a loss is read from the device, and added up over the ranks, only to be logged."""

    metrics: MetricsLog
    reporter: Reporter
    meter: Meter
    watch: Watch
    profile: Profile | None = None
    _pending: Callable[[], None] | None = None
    _scored: tuple[int, dict[str, Any]] | None = None

    def step(self, job: Job, labels: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        """Note a step; write it out where it is one to log. Reading the loss waits for the device, so not always."""
        step, options = job.position.step, job.config.train
        self.meter.add(labels)
        if self.profile is not None:
            begin = int(self.meter.taken * 1e9)
            self.profile.step(f"step {step}", begin, time.perf_counter_ns() - begin)
        self.reporter.step(step, job.position.tokens)
        self._pending = partial(self._write, job, step, job.position.tokens, loss, norm, rate)
        if step == 1 or step % options.log_every == 0:
            self.close()

    def finite(self, job: Job, loss: Tensor, norm: Tensor | None = None) -> float:
        """Return the loss of the step over all ranks; refuse to log, or to keep, a model that is lost.

        Also one whose weights the step has spoilt: of ``norm``, the gradient's, that was not finite (with fp16 such
        steps are not made).
        """
        value = float(_over_ranks(job, loss))
        name, lost = "loss", value
        if norm is not None and math.isfinite(value) and job.accelerator.mixed_precision != "fp16":
            name, lost = "norm of the gradient", float(norm_of(norm))
        if not math.isfinite(lost):
            raise StreamfeedError(
                f"the {name} is {lost} at step {job.position.step}; resume from an earlier checkpoint, with a smaller "
                "--train.lr, or with --train.skip_rows to step over the rows behind that checkpoint"
            )
        return value

    def held_out(self, job: Job, evaluation: Evaluation) -> dict[str, Any]:
        """Score the held-out data and note it, unless that was done at this step; return the figures."""
        step = job.position.step
        if self._scored is None or self._scored[0] != step:
            self.close()
            with self.meter.aside():
                score = evaluation.score(job)
            self._scored = step, score.line()
            logged = read_metrics(job.run.metrics)  # a finished run that is resumed has the line
            if not any(line["step"] == step and "eval_loss" in line for line in logged):
                self.metrics.write({"step": step, **score.line()})
            self.reporter.scored(step, score.line())
        return self._scored[1]

    def sync(self) -> None:
        """Bring the lines to the disk."""
        self.metrics.sync()

    def close(self) -> None:
        """Write the last step if it is not written: nobody knew before that it was the last. A collective."""
        write, self._pending = self._pending, None
        if write is not None:
            write()

    def _write(self, job: Job, step: int, tokens: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        value, lap = self.finite(job, loss), self.meter.lap()
        line: dict[str, Any] = {"step": step, "loss": value, "lr": rate, "tokens": tokens, **lap.figures()}
        line["grad_norm"] = float(norm_of(norm))
        found = self.watch.lap(lap.waited, lap.seconds)
        slow = line["data_wait_pct"] > TOO_MUCH_PCT
        if slow:
            line["bottleneck"] = found.stage
        self.metrics.write(line)
        self.reporter.figures(line, str(found) if slow else "")


def _over_ranks(job: Job, value: Tensor) -> Tensor:
    if job.accelerator.num_processes == 1:
        return value
    total: Tensor = job.accelerator.reduce(value.to(torch.float64), reduction="sum")
    return total


def write_profile(profile: Profile, path: Path) -> str:
    """Write what was recorded, and say where it is; what cannot be written does not end a run."""
    try:
        write_file(path, profile.to_json().decode())
    except OSError as error:
        return f"the profile cannot be written to {path}: {error}"
    lost = f" (the first {len(profile):,} spans; {profile.dropped:,} more were not kept)" if profile.dropped else ""
    return f"what the data pipeline did when is in {path}{lost}; open it at https://ui.perfetto.dev"


def speed_of(meter: Meter, watch: Watch) -> dict[str, Any]:
    """Return how fast the run was for ``summary.json``, and what held it up; ``watch`` has watched all of it."""
    total = meter.total()
    figures = total.figures()
    slow = figures["data_wait_pct"] > TOO_MUCH_PCT
    found = str(watch.lap(total.waited, total.seconds)) if slow else None
    return {"seconds": total.seconds, **figures, "bottleneck": found}


def summary_of(job: Job, saved: Checkpoint, ended_by: str) -> dict[str, Any]:
    """Return what ``summary.json`` holds but for the speed; ``ended_by`` is a setting, or the end of the data."""
    lines = [line for line in read_metrics(job.run.metrics) if "loss" in line]
    report, remarks = _of_all_ranks(job)
    return {
        "step": job.position.step,
        "ended_by": ended_by,
        "loss_start": lines[0]["loss"] if lines else None,
        "loss_end": lines[-1]["loss"] if lines else None,
        "tokens": job.position.tokens,
        "unit": job.loss.unit,
        "skipped_rows": job.position.skipped_rows,
        "not_trained_on": report.summary(),
        "noted": remarks,
        "checkpoint": str(saved.path),
        "resume": resume_command(job) + _longer(job, ended_by),
    }


def _of_all_ranks(job: Job) -> tuple[Report, str]:
    """Return what became of the data of all ranks, and what is to be said of it; a collective.

    Records are counted by lane, of which ranks may share some; padding is each rank's own.
    """
    ranks = job.together.ranks
    report = job.loader.report()
    slow = ranks.gather(report.slow_worker())
    if ranks.size == 1:
        return report, report.remarks()
    lanes = job.loader.state_dict(None if job.ended else job.used)["lanes"].values()
    tally = Tally()
    for lane in lanes:
        tally.add(Tally(**lane["tally"]))
    tokens, padding, empty = ranks.sum([report.tokens, report.padding, report.empty_rows])
    whole = replace(report, tokens=tokens, padding=padding, empty_rows=empty, tally=tally, waited=())
    said = [whole.remarks(), *(f"rank {rank} {text}" for rank, text in enumerate(slow) if text)]
    return whole, ", ".join(part for part in said if part)


def resume_command(job: Job) -> str:
    """Return the command that goes on, on as many ranks."""
    ranks = job.together.ranks.size
    launcher = "python" if ranks == 1 else f"torchrun --nproc-per-node {ranks}"
    return f"{launcher} -m streamfeed.train --resume {shlex.quote(str(job.run.path))}"


def _longer(job: Job, ended_by: str) -> str:
    """Return the flag that makes a run that has reached its end go on for as long again."""
    done = {"train.max_steps": job.position.step, "train.max_tokens": job.position.tokens}
    return f" --{ended_by} {2 * done[ended_by]}" if ended_by in done and not job.ended else ""
