"""The training job, top to bottom."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from streamfeed.errors import ConfigError, StreamfeedError
from streamfeed.loader.bottleneck import Watch
from streamfeed.loader.loader import StreamLoader
from streamfeed.loader.profile import Profile
from streamfeed.topology import Ranks
from streamfeed.train.atomic import write_file
from streamfeed.train.count import count_steps
from streamfeed.train.evaluate import Evaluation
from streamfeed.train.job import Job, rows_to_skip, set_up, settle
from streamfeed.train.log import Log, resume_command, speed_of, summary_of, write_profile
from streamfeed.train.metrics import Meter, MetricsLog
from streamfeed.train.parallel import make_accelerator
from streamfeed.train.schedule import DEFAULT_STEPS, Length, learning_rate
from streamfeed.train.snapshot import Position, read_position
from streamfeed.train.step import backward, micro_batches
from streamfeed.train.stop import Stop, Stopped
from streamfeed.train.together import Together
from streamfeed.train.trackers import Trackers, make_trackers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.train.attention import Batch
    from streamfeed.train.checkpoint import Checkpoint
    from streamfeed.train.config import RunConfig
    from streamfeed.train.folders import RunFolder
    from streamfeed.train.progress import Reporter

__all__ = ["train"]

_PATIENCE = 100  # steps: a very long prompt fills many rows that have no label


def train(
    config: RunConfig, run: RunFolder, start: Checkpoint | None, reporter: Reporter, stop: Stop | None = None
) -> dict[str, Any]:
    """Train from scratch or from ``start``, write the run folder, and return what ``summary.json`` holds.

    Raises :class:`~streamfeed.errors.ConfigError` before the first step for settings that cannot work together, the
    stream's own errors while it runs, and :class:`~streamfeed.train.stop.Stopped` once ``stop`` was asked for and what
    was learnt is saved. With several ranks all of them call it.
    """
    stop = stop or Stop()
    with stop.interruptible():
        # Device, precision, ranks; and where the run stands: at zero, or at a checkpoint.
        trackers = make_trackers(config.train.trackers, run.path, start.step if start else 0)
        accelerator = make_accelerator(config, trackers)
        ranks = Ranks.find()
        if ranks.number:
            reporter.silence()
        position, stream = ranks.together(lambda: read_position(start) if start else (Position(), None))
        _same_start(start, ranks)
        config = settle(config, run, position, ranks.size)
        accumulate = micro_batches(position.global_batch_size, config.loader.batch_size, ranks.size)
        to_skip = rows_to_skip(config.train.skip_rows, position.skipped_rows, config.loader.batch_size * ranks.size)

    # The stream, each rank its own rows; and that of held-out data, if any.
    together = Together(ranks, stop)
    profile = Profile() if config.profile else None
    with stop.interruptible():
        held_out = Evaluation(config, together, accelerator.device) if config.eval.given else nullcontext()
        stream_loader = StreamLoader(
            config.stream(),
            config.loader.batch_size,
            num_workers=config.loader.num_workers,
            rank=ranks.number,
            world_size=ranks.size,
            group=ranks.group,
            kept_states=accumulate + 16,
            pad_to_multiple_of=config.loader.pad_to_multiple_of,
            profile=profile,
        )
    with Trackers(accelerator, config) as tracked, held_out as evaluation, stream_loader as loader:
        with stop.interruptible():
            if stream is not None:
                loader.load_state_dict(stream)
            count_steps(config, loader, position, reporter.note)
            job = set_up(config, run, loader, start, position, accelerator, together)
        length = Length.of(config, position)
        reporter.note(_describe(job, accumulate, length))
        batches: Iterator[Batch] = iter(()) if job.ended else iter(job.loader)

        # Step over rows that the user does not want, learn from the rest, and keep what was learnt.
        meter, whole = Meter(), Watch(loader)
        with MetricsLog(run.metrics if job.first else None, partial(tracked.log, meter)) as metrics:
            log = Log(metrics, reporter, meter, Watch(loader), profile)
            try:
                if to_skip:
                    reporter.note(f"stepping over {to_skip:,} rows of the stream before step {position.step + 1}")
                    job.step_over(batches, to_skip)
                reporter.begin(position, length, job.loss.unit)
                ended_by = _learn(job, batches, accumulate, length, log, evaluation)
                saved = job.save()
                score = log.held_out(job, evaluation) if evaluation is not None else {}
            except Stopped as stopped:
                log.close()
                saved = job.save()
                reporter.note(
                    f"\n{stopped} behind step {position.step}; all of it is saved in {saved.path}. Continue with:\n"
                    f"  {resume_command(job)}"
                )
                raise
            finally:
                if profile is not None:
                    reporter.note(write_profile(profile, run.profile(ranks.number)))
        summary = summary_of(job, saved, ended_by) | speed_of(meter, whole) | score
        if job.first:
            write_file(run.summary, json.dumps(summary, indent=1) + "\n")
    return summary


def _learn(
    job: Job, batches: Iterator[Batch], accumulate: int, length: Length, log: Log, evaluation: Evaluation | None
) -> str:
    """Take optimizer steps until the run is as long as asked, or the end of a finite stream; score in between.

    Returns what ended it.
    """
    options, position = job.config.train, job.position
    while not (ended_by := length.reached(position)):
        # Data: the micro-batches of one optimizer step, as many on every rank; fewer in a finite stream's last step.
        with log.meter.waiting():
            micro, labels = job.take(batches, accumulate)
        if not micro:
            job.note_end()
            ended_by = "the end of the data"
            break

        # Learn. The loss is a mean over the labels of all micro-batches of all ranks.
        rate = learning_rate(position, options, length)
        for group in job.optimizer.param_groups:
            group["lr"] = rate
        loss = backward(job.accelerator, job.model, job.loss, micro, labels)
        norm = job.accelerator.clip_grad_norm_(job.model.parameters(), options.clip or math.inf)
        job.optimizer.step()
        job.optimizer.zero_grad(set_to_none=True)
        position.step += 1
        position.tokens += labels
        if position.step <= options.warmup_steps:
            position.warm_tokens = position.tokens
        job.used += len(micro)
        job.saved = None
        if position.step >= _PATIENCE:
            _refuse_no_labels(job)

        # Report and keep.
        log.step(job, labels, loss, norm, rate)
        if evaluation is not None and evaluation.due(position.step):
            log.held_out(job, evaluation)
        if options.checkpoint_every and position.step % options.checkpoint_every == 0:
            log.finite(job, loss, norm)
            log.sync()
            job.save()
    if position.step:
        _refuse_no_labels(job)
    log.close()
    return ended_by


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


def _same_start(start: Checkpoint | None, ranks: Ranks) -> None:
    """Raise :class:`ConfigError` on all ranks where they start from different places."""
    found = ranks.gather(str(start.path.absolute()) if start else "the beginning")
    if len(set(found)) > 1:
        raise ConfigError(
            f"ranks see different checkpoints ({found[0]} and {next(one for one in found if one != found[0])}); "
            "train.output_dir must be one folder that all of them share"
        )


def _describe(job: Job, accumulate: int, length: Length) -> str:
    size = sum(parameter.numel() for parameter in job.model.parameters())
    at = f"from step {job.position.step} " if job.position.step else ""
    most = "up to " if job.config.data.packing == "none" else ""
    rows = f"{job.position.global_batch_size} rows of {most}{job.config.data.seq_len} tokens a step"
    ranks = job.together.ranks.size
    split = f"{accumulate} x {job.config.loader.batch_size} on {ranks} rank(s)"
    default = ""
    if job.config.train.max_steps is None and length.steps == DEFAULT_STEPS:
        default = (
            f"; {DEFAULT_STEPS:,} steps, as neither train.max_steps, train.max_tokens nor data.epochs bounds the run"
        )
    return (
        f"Training {size / 1e6:.1f} M parameters {at}on {job.accelerator.device}: {rows} ({split}){default}, "
        f"into {job.run.path}"
    )
