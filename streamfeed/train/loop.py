"""The training job, top to bottom."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from streamfeed.errors import StreamfeedError
from streamfeed.loader.loader import StreamLoader
from streamfeed.train.atomic import write_file
from streamfeed.train.evaluate import Evaluation
from streamfeed.train.job import Job, make_accelerator, rows_to_skip, set_up, settle
from streamfeed.train.metrics import Meter, MetricsLog, read_metrics
from streamfeed.train.snapshot import Position, read_position
from streamfeed.train.step import backward, learning_rate, micro_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfeed.train.attention import Batch
    from streamfeed.train.checkpoint import Checkpoint
    from streamfeed.train.config import RunConfig
    from streamfeed.train.folders import RunFolder
    from streamfeed.train.progress import Reporter

__all__ = ["train"]

_PATIENCE = 100  # steps: a very long prompt fills many rows that have no label


def train(config: RunConfig, run: RunFolder, start: Checkpoint | None, reporter: Reporter) -> dict[str, Any]:
    """Train from scratch or from ``start``, write the run folder, and return what ``summary.json`` holds.

    Raises :class:`~streamfeed.errors.ConfigError` before the first step for settings that cannot work together, and the
    stream's own errors while it runs.
    """
    # Device, precision, ranks; and where the run stands: at zero, or at a checkpoint.
    accelerator = make_accelerator(config)
    world = accelerator.num_processes
    if not accelerator.is_main_process:
        reporter.silence()
    position, stream = read_position(start) if start else (Position(), None)
    config = settle(config, run, position, world)
    accumulate = micro_batches(position.global_batch_size, config.loader.batch_size, world)
    to_skip = rows_to_skip(config.train.skip_rows, position.skipped_rows, config.loader.batch_size * world)

    # The stream, each rank its own rows; and that of held-out data, if any.
    held_out = Evaluation(config, accelerator) if config.eval.uri is not None else nullcontext()
    with (
        held_out as evaluation,
        StreamLoader(
            config.data.stream(),
            config.loader.batch_size,
            num_workers=config.loader.num_workers,
            rank=accelerator.process_index,
            world_size=world,
            pad_to_multiple_of=config.loader.pad_to_multiple_of,
        ) as loader,
    ):
        if stream is not None:
            loader.load_state_dict(stream)
        job = set_up(config, run, loader, start, position, accelerator)
        reporter.note(_describe(job, accumulate))
        batches: Iterator[Batch] = iter(()) if job.ended else iter(loader)

        # Step over rows that the user does not want, learn from the rest, and keep what was learnt.
        if to_skip:
            reporter.note(f"stepping over {to_skip:,} rows of the stream before step {position.step + 1}")
            job.step_over(batches, to_skip)
        meter = Meter()
        reporter.begin(position.step, config.train.max_steps, job.loss.unit)
        with MetricsLog(run.metrics if accelerator.is_main_process else None) as metrics:
            log = _Log(metrics, reporter, meter)
            _learn(job, batches, accumulate, log, evaluation)
            saved = job.save()
            score = log.held_out(job, evaluation) if evaluation is not None else {}
        summary = _summary(job, saved) | meter.total() | score
        if accelerator.is_main_process:
            write_file(run.summary, json.dumps(summary, indent=1) + "\n")
    return summary


def _learn(job: Job, batches: Iterator[Batch], accumulate: int, log: _Log, evaluation: Evaluation | None) -> None:
    """Take optimizer steps until ``train.max_steps``, or the end of a finite stream; score in between."""
    options, position = job.config.train, job.position
    while position.step < options.max_steps:
        # Data: the micro-batches of one optimizer step; fewer in the last step of a finite stream.
        with log.meter.waiting():
            micro = list(itertools.islice(batches, accumulate))
        if not micro:
            _note_end(job)
            break

        # Learn. The loss is a mean over the labels of all micro-batches of all ranks.
        rate = learning_rate(
            position.step, peak=options.lr, floor=options.min_lr, warmup=options.warmup_steps, total=options.max_steps
        )
        for group in job.optimizer.param_groups:
            group["lr"] = rate
        labels = int(_over_ranks(job, torch.tensor(sum(job.loss.count(batch) for batch in micro))))
        loss = backward(job.accelerator, job.model, job.loss, micro, labels)
        norm = job.accelerator.clip_grad_norm_(job.model.parameters(), options.clip or math.inf)
        job.optimizer.step()
        job.optimizer.zero_grad(set_to_none=True)
        position.step += 1
        position.tokens += labels
        job.saved = None
        if position.step >= _PATIENCE:
            _refuse_no_labels(job)

        # Report and keep.
        log.step(job, labels, loss, norm, rate)
        if evaluation is not None and evaluation.due(position.step):
            log.held_out(job, evaluation)
        if options.checkpoint_every and position.step % options.checkpoint_every == 0:
            log.finite(job, loss)
            log.sync()
            job.save()
    if position.step:
        _refuse_no_labels(job)
    log.close()


def _refuse_no_labels(job: Job) -> None:
    """Raise where nothing has been learnt from: weights only decayed, at a loss of 0."""
    if job.position.tokens:
        return
    why = ""
    if job.config.data.objective == "chat":
        why = ' (in chats it is on messages whose role is "assistant"; map can rename roles)'
    raise StreamfeedError(
        f"no row of the first {job.position.step} step(s) has a label, a token with a loss{why}; "
        "look at the rows with: streamfeed inspect"
    )


@dataclass
class _Log:
    """Figures on the screen and in ``metrics.jsonl``."""

    metrics: MetricsLog
    reporter: Reporter
    meter: Meter
    _pending: Callable[[], None] | None = None
    _scored: tuple[int, dict[str, Any]] | None = None

    def step(self, job: Job, labels: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        """Note a step; write it out where it is one to log. Reading the loss waits for the device, so not always."""
        step, options = job.position.step, job.config.train
        self.meter.add(labels)
        self.reporter.step(step)
        self._pending = partial(self._write, job, step, loss, norm, rate)
        if step == 1 or step == options.max_steps or step % options.log_every == 0:
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
        """Write the last step if it is not written: nobody knew before that it was the last."""
        write, self._pending = self._pending, None
        if write is not None:
            write()

    def _write(self, job: Job, step: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        line = {
            "step": step,
            "loss": self.finite(job, loss),
            "lr": rate,
            "tokens": job.position.tokens,
            **self.meter.lap(),
        }
        line["grad_norm"] = float(norm)
        self.metrics.write(line)
        self.reporter.figures(line)


def _over_ranks(job: Job, value: Tensor) -> Tensor:
    if job.accelerator.num_processes == 1:
        return value
    total: Tensor = job.accelerator.reduce(value.to(job.accelerator.device), reduction="sum")
    return total


def _note_end(job: Job) -> None:
    if not job.ended:
        job.position.ended = job.config.data.epochs or 0
        job.saved = None


def _describe(job: Job, accumulate: int) -> str:
    size = sum(parameter.numel() for parameter in job.model.parameters())
    at = f"from step {job.position.step} " if job.position.step else ""
    most = "up to " if job.config.data.packing == "none" else ""
    rows = f"{job.position.global_batch_size} rows of {most}{job.config.data.seq_len} tokens a step"
    split = f"{accumulate} x {job.config.loader.batch_size} on {job.accelerator.num_processes} rank(s)"
    return (
        f"Training {size / 1e6:.1f} M parameters {at}on {job.accelerator.device}: {rows} ({split}), into {job.run.path}"
    )


def _summary(job: Job, saved: Checkpoint) -> dict[str, Any]:
    lines = [line for line in read_metrics(job.run.metrics) if "loss" in line]
    finished = job.position.step >= job.config.train.max_steps and not job.ended
    more = f" --train.max_steps {2 * job.position.step}" if finished else ""
    return {
        "step": job.position.step,
        "ended_by": "the end of the data" if job.ended else "train.max_steps",
        "loss_start": lines[0]["loss"] if lines else None,
        "loss_end": lines[-1]["loss"] if lines else None,
        "tokens": job.position.tokens,
        "unit": job.loss.unit,
        "skipped_rows": job.position.skipped_rows,
        "not_trained_on": job.loader.report().summary(),
        "noted": job.loader.report().remarks(),
        "checkpoint": str(saved.path),
        "resume": f"python -m streamfeed.train --resume {shlex.quote(str(job.run.path))}{more}",
    }
