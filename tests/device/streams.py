"""Prefetchers over streams, with look-ahead as far as it may go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfeed import DevicePrefetcher
from tests.device.fake_engine import LateEngine
from tests.streams import CACHE, Batches, InProcessLoader

if TYPE_CHECKING:
    from streamfeed import StreamConfig, StreamLoader


class EagerLoader(InProcessLoader):
    """Says that it is ready at any time of a pass: what looks ahead meets its end, and its errors."""

    def ready(self) -> bool:
        return self._turns is not None


def prefetching(
    config: StreamConfig, batch: int = 2, *, workers: int = 0, depth: int = 2, chance: float = 0.0, **options: Any
) -> tuple[DevicePrefetcher, LateEngine]:
    engine = LateEngine(chance, depth)
    loader = EagerLoader(config, batch, workers=workers, cache_dir=CACHE, **options)
    return DevicePrefetcher(loader, "cpu", depth=depth, engine=engine), engine


def contents(batches: list[Any], engine: LateEngine) -> Batches:
    """Return what kept batches hold once all copies have happened."""
    engine.settle()
    return [{name: column.numpy() for name, column in batch.items()} for batch in batches]


def plain(config: StreamConfig, batch: int = 2, **options: Any) -> StreamLoader:
    return InProcessLoader(config, batch, cache_dir=CACHE, **options)
