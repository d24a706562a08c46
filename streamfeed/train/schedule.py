"""How long a run is, and the learning rate on the way: in steps, in labels, or in epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamfeed.train.config import RunConfig, TrainConfig
    from streamfeed.train.snapshot import Position

__all__ = ["DEFAULT_STEPS", "Length", "learning_rate", "must_count"]

DEFAULT_STEPS = 1000
"""Steps of a run that nothing bounds."""


@dataclass(frozen=True)
class Length:
    """What ends a run: ``steps``, or ``tokens``, labels trained on over all ranks; whichever is reached first.

    ``of_data``: the steps that the data are known to give, as they were counted; the data may also just end.
    """

    steps: int | None = None
    tokens: int | None = None
    of_data: int | None = None

    @classmethod
    def of(cls, config: RunConfig, position: Position) -> Length:
        """Read it off the settings, and off ``position`` what was counted."""
        options = config.train
        steps = options.max_steps
        if steps is None and options.max_tokens is None and config.data.epochs is None:
            steps = DEFAULT_STEPS
        of_data = None
        if position.counted:
            skipped = max(options.skip_rows, position.skipped_rows)
            of_data = -(-(position.counted - skipped) // position.global_batch_size)
        return cls(steps, options.max_tokens, of_data)

    @property
    def last_step(self) -> int | None:
        """The last step as far as it is known."""
        known = [steps for steps in (self.steps, self.of_data) if steps is not None]
        return min(known, default=None)

    def reached(self, position: Position) -> str:
        """Name the setting that ends the run at ``position``; empty where none does."""
        if self.steps is not None and position.step >= self.steps:
            return "train.max_steps"
        if self.tokens is not None and position.tokens >= self.tokens:
            return "train.max_tokens"
        return ""

    def share(self, position: Position, warmup: int) -> float:
        """Return how much of the run behind the warm-up is done, from 0 to 1, by the bound that is nearest."""
        shares = [0.0]
        if self.last_step is not None:
            shares.append((position.step - warmup) / max(1, self.last_step - warmup))
        if self.tokens is not None:
            begun = position.warm_tokens
            shares.append((position.tokens - begun) / max(1, self.tokens - begun))
        return min(1.0, max(shares))


def must_count(config: RunConfig) -> bool:
    """Say whether the end of the data may be what ends the run, with a learning rate that depends on where that is."""
    return config.data.epochs is not None and config.train.max_steps is None and config.train.lr_schedule == "cosine"


def learning_rate(position: Position, options: TrainConfig, length: Length) -> float:
    """Return the rate of the step behind ``position``, a function of it alone.

    A linear warm-up, then half a cosine from ``lr`` to ``lr * min_lr`` at the end of the run (Loshchilov and Hutter,
    2017, without restarts), or ``lr`` for good.
    """
    if position.step < options.warmup_steps:
        return options.lr * (position.step + 1) / options.warmup_steps
    if options.lr_schedule == "constant":
        return options.lr
    share = length.share(position, options.warmup_steps)
    return options.lr * (options.min_lr + (1.0 - options.min_lr) * 0.5 * (1.0 + math.cos(math.pi * share)))
