"""The parts of a run put together: model, optimizer, stream, run folder, and the position they share."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed
from torch.optim import AdamW, Optimizer

from streamfeed.device.prefetch import DevicePrefetcher
from streamfeed.errors import ConfigError, StreamfeedError
from streamfeed.train.atomic import write_file
from streamfeed.train.attention import check_attention
from streamfeed.train.checkpoint import Checkpoint, begin, finish, prune, set_aside_after
from streamfeed.train.flags import to_yaml
from streamfeed.train.losses import make_loss
from streamfeed.train.metrics import cut_metrics
from streamfeed.train.model import build_model, parameter_groups
from streamfeed.train.parallel import load_moments, whole_moments, whole_weights
from streamfeed.train.snapshot import (
    Position,
    random_state,
    read_moments,
    restore_random,
    save_random,
    save_training,
    seed_rank,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from accelerate import Accelerator
    from torch import nn
    from transformers import PreTrainedModel

    from streamfeed.loader.loader import StreamLoader
    from streamfeed.train.attention import Batch
    from streamfeed.train.config import RunConfig
    from streamfeed.train.folders import RunFolder
    from streamfeed.train.losses import Loss
    from streamfeed.train.together import Taken, Together

__all__ = ["Job", "rows_to_skip", "set_up", "settle"]

_log = logging.getLogger(__name__)


@dataclass
class Job:
    """A run that is ready for its next step."""

    config: RunConfig
    run: RunFolder
    accelerator: Accelerator
    together: Together
    loader: DevicePrefetcher
    """measures the labels of each batch"""
    model: nn.Module
    loss: Loss
    optimizer: Optimizer
    position: Position
    saved: Checkpoint | None
    """the checkpoint that holds just this position, if any"""
    used: int = 0
    """batches of the loader that were trained on or stepped over; it may have handed out more"""

    @property
    def rows_at_once(self) -> int:
        """Rows of one micro-batch over all ranks."""
        return self.config.loader.batch_size * self.together.ranks.size

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self.position.ended > 0

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.together.ranks.number == 0

    def take(self, batches: Iterator[Batch], count: int) -> Taken:
        """Take ``count`` batches for a step, on all ranks at once; see :meth:`Together.take`."""
        return self.together.take(self.loader, batches, count)

    def step_over(self, batches: Iterator[Batch], rows: int) -> None:
        """Take ``rows`` rows of the stream without training on them."""
        for _ in range(rows // self.rows_at_once):
            if not self.take(batches, 1).batches:
                return
            self.used += 1
            self.position.skipped_rows += self.rows_at_once
            self.saved = None

    def note_end(self) -> None:
        """Note that the stream has ended."""
        if not self.ended:
            self.position.ended = self.config.data.epochs or 0
            self.saved = None

    def save(self) -> Checkpoint:
        """Write the checkpoint of this position, on every rank at once; return the one that is there already.

        Raises :class:`~streamfeed.errors.StreamfeedError` on all ranks where it cannot be written.
        """
        if self.saved is None:
            stream = self.loader.state_dict(None if self.ended else self.used)
            weights = whole_weights(self.accelerator, self.model)
            moments = whole_moments(self.model, _bare(self.optimizer))
            randoms = self.together.ranks.gather(random_state())
            self.together.ranks.together(lambda: self._write(stream, weights, moments, randoms))
            step = self.position.step
            self.saved = Checkpoint(self.run.checkpoints / f"step-{step:06d}", step)
        return self.saved

    def _write(
        self,
        stream: dict[str, Any],
        weights: dict[str, Any] | None,
        moments: dict[str, Any],
        randoms: list[dict[str, Any]],
    ) -> None:
        """Write the files, on the first rank; what cannot be written leaves nothing behind."""
        if not self.first:
            return
        folder, step = self.run.checkpoints, self.position.step
        model = self.accelerator.unwrap_model(self.model)
        try:
            temporary = begin(folder, step)
            save_random(temporary, randoms)
            save_training(temporary, model, weights, moments, self.position, stream, self.loader.tokenizer.json)
            finish(temporary, step)
        except Exception as error:  # whatever the libraries that write make of a full disk
            _remove(folder / f".writing-step-{step:06d}")
            cause = " ".join(str(error).split())[:300]
            raise StreamfeedError(
                f"the checkpoint of step {step} cannot be written under {folder}: {cause}; "
                "those before it stand: make room, then go on with --resume latest"
            ) from error
        keep = self.config.train.keep_checkpoints
        if keep:
            prune(folder, keep)


def _remove(path: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(path)


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
    together: Together,
) -> Job:
    """Build model and optimizer, put them where ``start`` left them, and open the run folder. A collective.

    ``loader`` is taken from ahead of time from then on, to the device of ``accelerator``.
    The loader is not prepared by Accelerate, which would shard a stream that is sharded already and look ahead.
    """
    set_seed(config.train.seed)
    stream = config.stream()

    def build() -> tuple[PreTrainedModel, Loss]:
        weights = start.path if start is not None else None
        bare = build_model(config.model, stream.objective, loader.tokenizer, stream.seq_len, weights)
        check_attention(bare, accelerator.device)
        bare.to(accelerator.device)
        return bare, make_loss(stream.objective, bare, packed=stream.packing != "none")

    bare, loss = together.ranks.together(build)
    groups = parameter_groups(bare, config.train.weight_decay)
    optimizer = AdamW(groups, lr=config.train.lr, betas=(config.train.beta1, config.train.beta2))
    model, prepared = accelerator.prepare(bare, optimizer)
    if start is not None:
        load_moments(model, _bare(prepared), read_moments(start))
    together.ranks.together(lambda: _open_folder(config, run, position.step) if together.ranks.number == 0 else None)
    if start is not None:
        restore_random(start, together.ranks.number, config.train.seed)
    elif together.ranks.number:
        seed_rank(together.ranks.number, config.train.seed)
    here = start is not None and start.path.absolute().parent == run.checkpoints.absolute()
    saved = start if here else None
    batches = DevicePrefetcher(loader, accelerator.device, measure=loss.count)
    return Job(config, run, accelerator, together, batches, model, loss, prepared, position, saved)


def _bare(optimizer: Any) -> Optimizer:  # noqa: ANN401 - Accelerate's, or torch's
    """Return torch's own optimizer."""
    inner: Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def _open_folder(config: RunConfig, run: RunFolder, step: int) -> None:
    """Make the run folder, or cut from it what lies after ``step``."""
    run.path.mkdir(parents=True, exist_ok=True)
    write_file(run.config, to_yaml(config))
    cut = cut_metrics(run.metrics, step)
    if cut:
        _log.info("%s: dropped %d lines after step %d, which is trained again", run.metrics, cut, step)
    for path in set_aside_after(run.checkpoints, step):
        _log.warning("a checkpoint of the branch that this resume leaves is kept as %s", path)
