"""Counting the steps of a finite stream, for a learning rate that ends with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streamfeed.errors import ConfigError
from streamfeed.train.schedule import must_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.loader.loader import StreamLoader
    from streamfeed.train.config import RunConfig
    from streamfeed.train.snapshot import Position

__all__ = ["count_steps"]


def count_steps(config: RunConfig, loader: StreamLoader, position: Position, say: Callable[[str], None]) -> None:
    """Note in ``position`` how many rows the stream gives, if the learning rate depends on it; a collective.

    The whole stream is read and encoded for it, once: it takes a small part of the time of training, and the number is
    exact on any number of ranks. A resume has it in its checkpoint. The loader stands at the beginning again.
    Raises :class:`~streamfeed.errors.ConfigError` where a resume asks for another number of epochs.
    """
    epochs = config.data.epochs
    if not must_count(config) or epochs is None:
        return
    if position.counted_epochs == epochs:
        return
    if position.step or position.skipped_rows:
        was = f"counted for {position.counted_epochs}" if position.counted_epochs else "not counted"
        raise ConfigError(
            f"data.epochs is {epochs}, and the steps of the run resumed were {was}: the learning rate depends on where "
            "the data end; give train.max_steps, or train.lr_schedule constant"
        )
    say(f"Counting the steps of {epochs} epoch(s): the learning rate falls until the last one ...")
    begin = time.perf_counter()
    batches = sum(1 for _ in loader)
    loader.reset()
    position.counted, position.counted_epochs = batches * loader.batch_size * loader.world_size, epochs
    steps = -(-position.counted // position.global_batch_size)
    say(f"{steps:,} steps, counted in {time.perf_counter() - begin:.0f} s.")
