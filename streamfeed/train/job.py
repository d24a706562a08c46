"""The parts of a run put together: model, optimizer, stream, run folder, and the position they share."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.optim import AdamW, Optimizer

from streamfeed.errors import ConfigError
from streamfeed.train.atomic import write_file
from streamfeed.train.attention import check_attention
from streamfeed.train.checkpoint import Checkpoint, begin, finish, set_aside_after, writing
from streamfeed.train.flags import to_yaml
from streamfeed.train.losses import make_loss
from streamfeed.train.metrics import cut_metrics
from streamfeed.train.model import build_model, parameter_groups
from streamfeed.train.snapshot import Position, restore_optimizer, restore_random, save_random, save_training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.loader.loader import StreamLoader
    from streamfeed.train.attention import Batch
    from streamfeed.train.config import RunConfig
    from streamfeed.train.folders import RunFolder
    from streamfeed.train.losses import Loss

__all__ = ["Job", "make_accelerator", "rows_to_skip", "set_up", "settle"]

_log = logging.getLogger(__name__)


@dataclass
class Job:
    """A run that is ready for its next step."""

    config: RunConfig
    run: RunFolder
    accelerator: Accelerator
    loader: StreamLoader
    model: nn.Module
    loss: Loss
    optimizer: Optimizer
    position: Position
    saved: Checkpoint | None
    """the checkpoint that holds just this position, if any"""

    @property
    def rows_at_once(self) -> int:
        """Rows of one micro-batch over all ranks."""
        return self.config.loader.batch_size * int(self.accelerator.num_processes)

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self.position.ended > 0

    def step_over(self, batches: Iterator[Batch], rows: int) -> None:
        """Take ``rows`` rows of the stream without training on them."""
        for _ in range(rows // self.rows_at_once):
            if next(batches, None) is None:
                return
            self.position.skipped_rows += self.rows_at_once
            self.saved = None

    def save(self) -> Checkpoint:
        """Write the checkpoint of this position, on every rank at once; return the one that is there already."""
        if self.saved is not None:
            return self.saved
        folder, step = self.run.checkpoints, self.position.step
        stream = self.loader.state_dict()
        first = self.accelerator.is_main_process
        if first:
            begin(folder, step)
        self.accelerator.wait_for_everyone()
        temporary = writing(folder, step)
        save_random(temporary, self.accelerator.process_index)
        if first:
            bare = self.accelerator.unwrap_model(self.model)
            save_training(temporary, bare, self.optimizer, self.position, stream, self.loader.tokenizer.json)
        self.accelerator.wait_for_everyone()
        if first:
            finish(temporary, step)
        self.accelerator.wait_for_everyone()
        self.saved = Checkpoint(folder / f"step-{step:06d}", step)
        return self.saved


def make_accelerator(config: RunConfig) -> Accelerator:
    """Find the device and the ranks, and choose the precision."""
    precision = config.train.precision
    if precision == "auto":
        precision = "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"
    accelerator = Accelerator(mixed_precision="no" if precision == "fp32" else precision)
    if accelerator.device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
    return accelerator


def settle(config: RunConfig, run: RunFolder, position: Position, world: int) -> RunConfig:
    """Fix the global batch size, which a resume keeps, and the run folder; note the former in ``position``.

    Raises :class:`~streamfeed.errors.ConfigError` where a setting does not fit the run resumed.
    """
    asked, kept = config.train.global_batch_size, position.global_batch_size
    if asked and kept and asked != kept:
        raise ConfigError(
            f"train.global_batch_size is {asked}, but the run resumed has {kept}, which a resume keeps: the loss curve "
            "belongs to it; leave the setting out, or start a new run"
        )
    if position.ended and position.ended != config.data.epochs:
        raise ConfigError(
            f"data.epochs is {config.data.epochs}, but this checkpoint was taken at the end of {position.ended}; "
            "resume from an earlier one, whose stream can go on"
        )
    position.global_batch_size = asked or kept or config.loader.batch_size * world
    fixed = replace(config.train, global_batch_size=position.global_batch_size, output_dir=str(run.path))
    return replace(config, train=fixed)


def rows_to_skip(asked: int, skipped: int, rows_at_once: int) -> int:
    """Return the rows to step over now, of the ``asked`` in all, ``skipped`` of which are behind the checkpoint.

    Asking for the total makes the flag safe to repeat: with it, a restart from a newer checkpoint skips nothing.
    Raises :class:`~streamfeed.errors.ConfigError` for a total below ``skipped`` and for part of a batch.
    """
    if not asked:
        return 0
    if asked < skipped:
        raise ConfigError(
            f"train.skip_rows {asked} is the total of the run, and this checkpoint has stepped over {skipped} rows "
            f"already; to step over {asked} more, give {skipped + asked}"
        )
    rows = asked - skipped
    if rows % rows_at_once:
        below = rows // rows_at_once * rows_at_once
        near = " or ".join(str(skipped + value) for value in (below, below + rows_at_once) if value)
        raise ConfigError(
            f"train.skip_rows {asked} is not whole batches of {rows_at_once} rows; the nearest that is: {near}"
        )
    return rows


def set_up(
    config: RunConfig,
    run: RunFolder,
    loader: StreamLoader,
    start: Checkpoint | None,
    position: Position,
    accelerator: Accelerator,
) -> Job:
    """Build model and optimizer, put them where ``start`` left them, and open the run folder.

    The loader is not prepared by Accelerate, which would shard a stream that is sharded already and look ahead.
    """
    set_seed(config.train.seed)
    stream = config.data.stream()
    weights = start.path if start else None
    bare = build_model(config.model, stream.objective, loader.tokenizer, stream.seq_len, weights)
    check_attention(bare, accelerator.device)
    bare.to(accelerator.device)
    loss = make_loss(stream.objective, bare, packed=stream.packing != "none")
    groups = parameter_groups(bare, config.train.weight_decay)
    optimizer = AdamW(groups, lr=config.train.lr, betas=(config.train.beta1, config.train.beta2))
    if start is not None:
        restore_optimizer(start, optimizer)
    model, prepared = accelerator.prepare(bare, optimizer)
    if accelerator.is_main_process:
        _open_folder(config, run, position.step)
    accelerator.wait_for_everyone()
    if start is not None:
        restore_random(start, accelerator.process_index, config.train.seed)
    here = start is not None and start.path.absolute().parent == run.checkpoints.absolute()
    return Job(config, run, accelerator, loader, model, loss, prepared, position, start if here else None)


def _open_folder(config: RunConfig, run: RunFolder, step: int) -> None:
    """Make the run folder, or cut from it what lies after ``step``."""
    run.path.mkdir(parents=True, exist_ok=True)
    write_file(run.config, to_yaml(config))
    cut = cut_metrics(run.metrics, step)
    if cut:
        _log.info("%s: dropped %d lines after step %d, which is trained again", run.metrics, cut, step)
    for path in set_aside_after(run.checkpoints, step):
        _log.warning("a checkpoint of the branch that this resume leaves is kept as %s", path)
