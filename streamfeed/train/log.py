"""Figures on the screen and in ``metrics.jsonl``, and the summary of a run."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from streamfeed.errors import StreamfeedError
from streamfeed.train.metrics import read_metrics
from streamfeed.train.parallel import norm_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from streamfeed.train.checkpoint import Checkpoint
    from streamfeed.train.evaluate import Evaluation
    from streamfeed.train.job import Job
    from streamfeed.train.metrics import Meter, MetricsLog
    from streamfeed.train.progress import Reporter

__all__ = ["Log", "resume_command", "summary_of"]


@dataclass
class Log:
    """What is noted of every step; a loss is read from the device, and added up over the ranks, only to be logged."""

    metrics: MetricsLog
    reporter: Reporter
    meter: Meter
    _pending: Callable[[], None] | None = None
    _scored: tuple[int, dict[str, Any]] | None = None

    def step(self, job: Job, labels: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        """Note a step; write it out where it is one to log. Reading the loss waits for the device, so not always."""
        step, options = job.position.step, job.config.train
        self.meter.add(labels)
        self.reporter.step(step, job.position.tokens)
        self._pending = partial(self._write, job, step, job.position.tokens, loss, norm, rate)
        if step == 1 or step % options.log_every == 0:
            self.close()

    def finite(self, job: Job, loss: Tensor) -> float:
        """Return the loss of the step over all ranks; refuse to log, or to keep, a model that is lost."""
        value = float(_over_ranks(job, loss))
        if not math.isfinite(value):
            raise StreamfeedError(
                f"the loss is {value} at step {job.position.step}; resume from an earlier checkpoint, with a smaller "
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
        line = {"step": step, "loss": self.finite(job, loss), "lr": rate, "tokens": tokens, **self.meter.lap()}
        line["grad_norm"] = float(norm_of(norm))
        self.metrics.write(line)
        self.reporter.figures(line)


def _over_ranks(job: Job, value: Tensor) -> Tensor:
    if job.accelerator.num_processes == 1:
        return value
    total: Tensor = job.accelerator.reduce(value.to(torch.float64), reduction="sum")
    return total


def summary_of(job: Job, saved: Checkpoint, ended_by: str) -> dict[str, Any]:
    """Return what ``summary.json`` holds but for the speed; ``ended_by`` is a setting, or the end of the data."""
    lines = [line for line in read_metrics(job.run.metrics) if "loss" in line]
    report = job.loader.report()
    return {
        "step": job.position.step,
        "ended_by": ended_by,
        "loss_start": lines[0]["loss"] if lines else None,
        "loss_end": lines[-1]["loss"] if lines else None,
        "tokens": job.position.tokens,
        "unit": job.loss.unit,
        "skipped_rows": job.position.skipped_rows,
        "not_trained_on": report.summary(),
        "noted": report.remarks(),
        "checkpoint": str(saved.path),
        "resume": resume_command(job) + _longer(job, ended_by),
    }


def resume_command(job: Job) -> str:
    """Return the command that goes on."""
    return f"python -m streamfeed.train --resume {shlex.quote(str(job.run.path))}"


def _longer(job: Job, ended_by: str) -> str:
    """Return the flag that makes a run that has reached its end go on for as long again."""
    done = {"train.max_steps": job.position.step, "train.max_tokens": job.position.tokens}
    return f" --{ended_by} {2 * done[ended_by]}" if ended_by in done and not job.ended else ""
