"""The held-out score: the loss over one pass of other data, without a trace in training."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from streamfeed.errors import EmptyStreamError, StreamfeedError
from streamfeed.loader.loader import StreamLoader
from streamfeed.train.step import on_device

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor

    from streamfeed.train.config import RunConfig
    from streamfeed.train.job import Job

__all__ = ["Evaluation", "Score"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Score:
    """The mean loss over ``labels`` held-out labels of all ranks; of a choice among classes, the share chosen right."""

    loss: float
    labels: int
    accuracy: float | None

    def line(self) -> dict[str, Any]:
        """Return the score as ``metrics.jsonl`` and ``summary.json`` have it."""
        right = {} if self.accuracy is None else {"eval_accuracy": self.accuracy}
        return {"eval_loss": self.loss, **right, "eval_labels": self.labels}


class Evaluation:
    """Scores a model on held-out data: a stream of its own, one pass in listed order, from the start each time.

    Making one lists the data, on every rank at once, and so fails before training where there is none.
    """

    def __init__(self, config: RunConfig, accelerator: Accelerator) -> None:
        self._every = config.eval.every
        self._accelerator = accelerator
        for uri in config.eval.also_trained_on(config.data) if accelerator.is_main_process else ():
            _log.warning("%s is both eval.uri and trained on: the score is not one of held-out data", uri)
        self._loader = StreamLoader(
            config.eval.stream(config.data),
            config.loader.batch_size,
            num_workers=config.loader.num_workers,
            rank=accelerator.process_index,
            world_size=accelerator.num_processes,
            pad_to_multiple_of=config.loader.pad_to_multiple_of,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loader.close()

    def due(self, step: int) -> bool:
        """Say whether there is a score to be made after ``step``."""
        return self._every > 0 and step % self._every == 0

    def score(self, job: Job) -> Score:
        """Score the model as it stands: no dropout, no gradient, no random number drawn; a collective.

        The bare model runs, since ranks may have different numbers of batches and a wrapped one exchanges in each.
        Raises :class:`~streamfeed.errors.StreamfeedError` where no rank has a label.
        """
        model = self._accelerator.unwrap_model(job.model)
        devices = [self._accelerator.device] if self._accelerator.device.type == "cuda" else []
        self._loader.reset()
        model.eval()
        try:
            with torch.random.fork_rng(devices), torch.no_grad(), self._accelerator.autocast():
                sums = self._sums(job, model)
        finally:
            model.train()
            self._loader.close()
        total, labels, right, classes = self._over_ranks(sums).tolist()
        if not labels:
            raise StreamfeedError("the held-out data of eval.uri has no label to score")
        return Score(total / labels, int(labels), right / labels if classes else None)

    def _sums(self, job: Job, model: torch.nn.Module) -> Tensor:
        """Return loss, labels, right choices, and whether there was a choice, summed over the batches of this rank."""
        sums = torch.zeros(4, dtype=torch.float64, device=self._accelerator.device)
        try:
            for batch in self._loader:
                loss, right = job.loss.summed(model, on_device(batch, self._accelerator.device))
                sums[0] += loss
                sums[1] += job.loss.count(batch)
                if right is not None:
                    sums[2] += right
                    sums[3] = 1
        except EmptyStreamError:
            if self._accelerator.num_processes == 1:  # of several ranks, some may have no row
                raise
        return sums

    def _over_ranks(self, sums: Tensor) -> Tensor:
        if self._accelerator.num_processes == 1:
            return sums
        total: Tensor = self._accelerator.reduce(sums, reduction="sum")
        return total
