"""The held-out score: the loss over one pass of other data, without a trace in training."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from streamfeed.device.prefetch import DevicePrefetcher
from streamfeed.errors import StreamfeedError
from streamfeed.loader.loader import StreamLoader

if TYPE_CHECKING:
    from torch import Tensor

    from streamfeed.train.config import RunConfig
    from streamfeed.train.job import Job
    from streamfeed.train.together import Together

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

    def __init__(self, config: RunConfig, together: Together, device: torch.device) -> None:
        self._every = config.eval.every
        self._together = together
        self._device = device
        self._batches: DevicePrefetcher | None = None  # made once it is known what to count
        ranks = together.ranks
        for uri in config.eval.also_trained_on(config.data) if ranks.number == 0 else ():
            _log.warning("%s is both eval.uri and trained on: the score is not one of held-out data", uri)
        self._loader = StreamLoader(
            config.eval_stream(),
            config.loader.batch_size,
            num_workers=config.loader.num_workers,
            rank=ranks.number,
            world_size=ranks.size,
            group=ranks.group,
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

        All ranks take the same number of batches, empty ones where their rows have ended, so that a model in parts is
        whole in each. Raises :class:`~streamfeed.errors.StreamfeedError` where no rank has a label, and
        :class:`~streamfeed.train.stop.Stopped` on all ranks when one was asked to stop.
        """
        model = job.accelerator.unwrap_model(job.model)
        devices = [self._device] if self._device.type == "cuda" else []
        if self._batches is None:
            self._batches = DevicePrefetcher(self._loader, self._device, measure=job.loss.count)
        self._batches.reset()
        model.eval()
        try:
            with torch.random.fork_rng(devices), torch.no_grad(), job.accelerator.autocast():
                sums = self._sums(job, model, self._batches)
        finally:
            model.train()
            self._batches.close()
        if job.accelerator.num_processes > 1:
            sums = job.accelerator.reduce(sums, reduction="sum")
        total, labels, right, classes = sums.tolist()
        if not labels:
            raise StreamfeedError(
                "the held-out data has no label to score; name more in eval.uri, or raise eval.hold_out"
            )
        return Score(total / labels, int(labels), right / labels if classes else None)

    def _sums(self, job: Job, model: torch.nn.Module, loader: DevicePrefetcher) -> Tensor:
        """Return loss, labels, right choices, and whether there was a choice, summed over the batches of this rank."""
        sums = torch.zeros(4, dtype=torch.float64, device=self._device)
        batches = iter(loader)
        while taken := self._together.take(loader, batches, 1).batches:
            loss, right = job.loss.summed(model, taken[0])
            sums[0] += loss
            sums[1] += loader.measured
            if right is not None:
                sums[2] += right
                sums[3] = 1
        return sums
