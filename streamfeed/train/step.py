"""One optimizer step: the loss of all its micro-batches, normalised by all its labels."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelerate import Accelerator

    from streamfeed.train.attention import Batch
    from streamfeed.train.losses import Loss

__all__ = ["backward", "micro_batches"]


def micro_batches(global_batch_size: int, batch_size: int, world: int) -> int:
    """Return how many micro-batches a rank accumulates for one optimizer step.

    Raises :class:`~streamfeed.errors.ConfigError` naming the nearest sizes where it does not divide.
    """
    together = batch_size * world
    count, rest = divmod(global_batch_size, together)
    if rest:
        below = f"{count * together} or " if count else ""
        raise ConfigError(
            f"train.global_batch_size {global_batch_size} does not divide into micro-batches of {batch_size} rows on "
            f"{world} rank{'s' if world > 1 else ''} ({together} rows at once); the nearest that does: "
            f"{below}{(count + 1) * together}"
        )
    return count


def backward(accelerator: Accelerator, model: nn.Module, loss: Loss, micro: Sequence[Batch], labels: int) -> Tensor:
    """Accumulate the gradient of the mean loss over ``labels``, those of all ranks and micro-batches of the step.

    The batches are on the device, which is not waited for: the host goes on to fetch the next ones. Gradients are
    exchanged in the last micro-batch only. Returns this rank's part of the mean loss, a scalar.
    """
    # DDP averages gradients over ranks; the labels are counted over all ranks already, so undo that division.
    scale = accelerator.num_processes / max(labels, 1)
    total = torch.zeros((), device=accelerator.device)
    for index, batch in enumerate(micro):
        with nullcontext() if index == len(micro) - 1 else accelerator.no_sync(model):
            summed, _ = loss.summed(model, batch)
            accelerator.backward(summed * scale)
        total += summed.detach() / max(labels, 1)
    return total
