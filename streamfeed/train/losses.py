"""What training minimises, by objective: a cross-entropy summed over labels, and how many labels those are.

Sums, because a mean over no labels is NaN, and because the mean that counts is over all ranks and micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch.nn import functional

from streamfeed.dataset.batch import IGNORED
from streamfeed.objectives import Classification, Mlm, Objective
from streamfeed.train.attention import choose_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from streamfeed.train.attention import Batch, Inputs

__all__ = ["CausalLoss", "ClassLoss", "Loss", "MaskedLoss", "make_loss"]


class Loss(Protocol):
    """The loss of an objective; ``unit`` is what its labels are called in reports."""

    unit: ClassVar[str]

    @property
    def inputs(self) -> Inputs:
        """Return what makes a batch the arguments of a model's ``forward``."""

    def count(self, batch: Batch) -> int:
        """Count the labels that the model is asked for."""

    def summed(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the cross-entropy summed over the labels of ``batch``, 0 where there are none.

        Beside it, where the objective is a choice among classes, how many were chosen right. Both are scalars.
        """


@dataclass(frozen=True)
class CausalLoss:
    """Of the next token; labels are int64 ``[B, T]``, not shifted."""

    inputs: Inputs
    unit: ClassVar[str] = "tokens"

    def count(self, batch: Batch) -> int:
        """Count all but the first column, which nothing predicts."""
        return int((batch["labels"][:, 1:] != IGNORED).sum())

    def summed(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the summed loss alone."""
        logits = model(**self.inputs(batch)).logits
        # The labels are shifted, not the logits: a slice of those would be a copy of the largest tensor of all.
        targets = functional.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
        return _cross_entropy(logits.flatten(0, 1), targets.flatten()), None


@dataclass(frozen=True)
class MaskedLoss:
    """Of the masked tokens, each at its own place; labels are int64 ``[B, T]``."""

    inputs: Inputs
    unit: ClassVar[str] = "tokens"

    def count(self, batch: Batch) -> int:
        """Count the tokens that were chosen."""
        return int((batch["labels"] != IGNORED).sum())

    def summed(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the summed loss alone."""
        logits = model(**self.inputs(batch)).logits
        return _cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()), None


@dataclass(frozen=True)
class ClassLoss:
    """Of one class a sample; labels are int64 ``[B]``."""

    inputs: Inputs
    unit: ClassVar[str] = "samples"

    def count(self, batch: Batch) -> int:
        """Count the samples; a row of padding alone is none."""
        return int((batch["labels"] != IGNORED).sum())

    def summed(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the summed loss, and how many samples have their largest logit at their class."""
        logits = model(**self.inputs(batch)).logits
        right = (logits.detach().argmax(-1) == batch["labels"]).sum()
        return _cross_entropy(logits, batch["labels"]), right


def make_loss(objective: Objective, model: PreTrainedModel, *, packed: bool) -> Loss:
    """Return the loss of ``objective``, which gives ``model`` its batches so that documents do not see each other.

    ``packed``: whether a row may hold several. Raises :class:`~streamfeed.errors.ConfigError` where ``model`` would let
    them.
    """
    if isinstance(objective, Classification):
        return ClassLoss(choose_inputs(model, causal=False, packed=packed))
    if isinstance(objective, Mlm):
        return MaskedLoss(choose_inputs(model, causal=False, packed=packed))
    return CausalLoss(choose_inputs(model, causal=True, packed=packed))


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
