"""A loader with the interface of ``StreamLoader`` and rows from nothing: row ``g`` is a function of ``g``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch

from streamfeed.encode.proof import Verdict
from streamfeed.encode.tokenizer import TokenizerSpec
from streamfeed.loader.flow import Flow
from streamfeed.loader.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.config import StreamConfig
    from streamfeed.loader.profile import Profile

ROWS_OF_AN_EPOCH = 42
VOCABULARY = 64


class FakeLoader:
    """Hands out rows in order; its state is the number of rows handed out."""

    handed_out: ClassVar[list[int]] = []

    def __init__(
        self,
        config: StreamConfig,
        batch_size: int,
        *,
        num_workers: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        group: Any = None,
        kept_states: int = 0,
        pad_to_multiple_of: int | None = None,
        profile: Profile | None = None,
    ) -> None:
        self._config = self.config = config
        self.num_workers, self.rank = num_workers, rank or 0
        self.plan, self.verdict = SimpleNamespace(lanes=1), Verdict("huggingface", "there is no text")
        self._size = self.batch_size = batch_size
        self.world_size = world_size or 1
        self._row = 0
        self._loaded = 0
        self.tokenizer = TokenizerSpec("{}", "fake", 0, None, None, VOCABULARY, "fake")

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        end = None if self._config.epochs is None else self._config.epochs * ROWS_OF_AN_EPOCH
        while end is None or self._row < end:
            rows = range(self._row, self._row + self._size)
            self._row += self._size
            FakeLoader.handed_out.extend(rows)
            yield collate([row(g, self._config.seq_len, empty=end is not None and g >= end) for g in rows])

    @property
    def batches(self) -> int:
        return (self._row - self._loaded) // self._size

    def reset(self) -> None:
        self._row = self._loaded = 0

    def leave(self) -> None:
        pass

    def report(self) -> Report:
        return Report()

    def flow(self) -> Flow:
        return Flow()

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        return {"rows": self._row if batches is None else self._loaded + batches * self._size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._row = self._loaded = state["rows"]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def row(g: int, length: int, *, empty: bool = False) -> dict[str, torch.Tensor]:
    """Two documents of unequal length; row 5 of every 7 has fewer labels."""
    generator = np.random.Generator(np.random.Philox(key=g))
    ids = torch.from_numpy(generator.integers(1, VOCABULARY // 2, length))
    border = 2 + g % (length - 3)
    positions = torch.cat([torch.arange(border), torch.arange(length - border)])
    labels = ids.clone()
    labels[0] = labels[border] = -100
    if g % 7 == 5:
        labels[length // 2 :] = -100
    if empty:
        labels[:] = -100
    return {"input_ids": ids, "labels": labels, "position_ids": positions}


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
