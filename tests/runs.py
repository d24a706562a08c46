"""Run folders as the main job leaves them, and the rows that its ranks were given: without a model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamfeed import merge_states
from streamfeed.loader.loader import StreamLoader
from streamfeed.train.checkpoint import begin, finish
from streamfeed.train.flags import to_yaml
from streamfeed.train.folders import RunFolder
from streamfeed.train.snapshot import Position, save_random
from tests.streams import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfeed.train.config import RunConfig


@dataclass
class FakeRun:
    """A run of the main job on any ranks; ``steps`` holds what each step was trained on: ids by number of the row."""

    path: Path
    config: RunConfig
    batch: int
    position: Position = field(default_factory=Position)
    state: dict[str, Any] | None = None
    steps: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)

    def train(self, steps: int, ranks: int, *, skip: int = 0, every: int = 0) -> FakeRun:
        """Start on so many ranks where the last start was saved; step over ``skip`` rows; save at the end too."""
        run = RunFolder(self.path)
        run.path.mkdir(exist_ok=True)
        options = replace(self.config.train, global_batch_size=self.batch, skip_rows=self.position.skipped_rows + skip)
        run.config.write_text(to_yaml(replace(self.config, train=options)))
        loaders = [self._loader(rank, ranks) for rank in range(ranks)]
        feeds = [self._rows(loader) for loader in loaders]
        self._take(feeds, skip)
        self.position.skipped_rows += skip
        for done in range(1, steps + 1):
            rows = self._take(feeds, self.batch)
            if rows:
                self.position.step += 1
                self.steps[self.position.step] = rows
            else:
                self.position.ended = self.config.data.epochs or 0
            if done == steps or not rows or (every and done % every == 0):
                self._save(run, loaders)
            if not rows:
                break
        return self

    def _loader(self, rank: int, ranks: int) -> StreamLoader:
        size = self.config.loader.batch_size
        loader = StreamLoader(self.config.stream(), size, rank=rank, world_size=ranks, cache_dir=CACHE)
        if self.state is not None:
            loader.load_state_dict(self.state)
        return loader

    def _rows(self, loader: StreamLoader) -> Iterator[dict[int, list[int]]]:
        """Yield the rows of every batch of a rank by number."""
        before = 0 if self.state is None else self.state["rows"]
        number = -(-(before - loader.rank) // loader.world_size) * loader.world_size + loader.rank
        for batch in loader:
            ids = batch["input_ids"].tolist()
            yield {number + i * loader.world_size: row for i, row in enumerate(ids)}
            number += len(ids) * loader.world_size

    def _take(self, feeds: list[Iterator[dict[int, list[int]]]], count: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for _ in range(count // (self.config.loader.batch_size * len(feeds))):
            for rank, feed in enumerate(feeds):
                rows = next(feed, {})
                found |= rows
                self.owners |= dict.fromkeys(rows, rank)
        return found

    def _save(self, run: RunFolder, loaders: list[StreamLoader]) -> None:
        self.position.global_batch_size = self.batch
        self.state = json.loads(json.dumps(merge_states([loader.state_dict() for loader in loaders])))
        folder = begin(run.checkpoints, self.position.step)
        (folder / "position.json").write_text(json.dumps(asdict(self.position)))
        (folder / "stream.json").write_text(json.dumps(self.state))
        save_random(folder, [{}] * len(loaders))
        finish(folder, self.position.step)
