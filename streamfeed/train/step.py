"""One optimizer step: the loss of all its micro-batches, normalised by all its labels."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelerate import Accelerator

__all__ = ["backward", "count_labels", "learning_rate", "micro_batches", "summed_loss"]

Batch = dict[str, Tensor]


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


def learning_rate(step: int, *, peak: float, floor: float, warmup: int, total: int) -> float:
    """Return the rate of the update after ``step`` done steps: linear warm-up, then a cosine to ``peak * floor``."""
    if step < warmup:
        return peak * (step + 1) / warmup
    share = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * share)))


def count_labels(batch: Batch) -> int:
    """Count the labels that a causal model is asked for: the first column predicts nothing."""
    return int((batch["labels"][:, 1:] != -100).sum())


def summed_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy summed over the labels of ``batch`` (a scalar; 0, not NaN, where there are none).

    No cache and no attention mask: only then does a transformers model read document borders off ``position_ids``.
    """
    out = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)
    # The labels are shifted, not the logits: a slice of those would be a copy of the largest tensor of all.
    targets = functional.pad(batch["labels"][:, 1:], (0, 1), value=-100).flatten()
    return functional.cross_entropy(out.logits.float().flatten(0, 1), targets, ignore_index=-100, reduction="sum")


def backward(accelerator: Accelerator, model: nn.Module, micro: Sequence[Batch], labels: int) -> Tensor:
    """Accumulate the gradient of the mean loss over ``labels``, those of all ranks and micro-batches of the step.

    Gradients are exchanged in the last micro-batch only. Returns this rank's part of the mean loss, a scalar.
    """
    # DDP averages gradients over ranks; the labels are counted over all ranks already, so undo that division.
    scale = accelerator.num_processes / max(labels, 1)
    total = torch.zeros((), device=accelerator.device)
    for index, batch in enumerate(micro):
        on_device = {name: column.to(accelerator.device, non_blocking=True) for name, column in batch.items()}
        with nullcontext() if index == len(micro) - 1 else accelerator.no_sync(model):
            loss = summed_loss(model, on_device)
            accelerator.backward(loss * scale)
        total += loss.detach() / max(labels, 1)
    return total
