"""One source's storage in one process: lists its shards, and opens them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfeed.stats import ReadStats
from streamfeed.storage.files import Edge, ShardFile
from streamfeed.storage.listing import Listing, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Store"]


class Store:
    """Where the shards of one source are listed and opened. Made in the process that uses it, never sent to another.

    ``options`` are fsspec's, for the source's URLs; they may hold secrets and appear in no message. ``stats`` counts
    what is read. Local paths are opened as they are.
    """

    def __init__(self, options: Mapping[str, Any] | None = None, stats: ReadStats | None = None) -> None:
        self._options = dict(options or {})
        self.stats = ReadStats() if stats is None else stats
        self._edge: Edge | None = None

    def file(self, url: str, size: int, version: str = "") -> ShardFile:
        """Return the shard at ``url``, of ``size`` bytes and ``version`` when the run planned."""
        return ShardFile(url, size, self.stats, version, self._edge)

    def list(self, uris: Sequence[str]) -> Listing:
        """List the shards that ``uris`` mean, in order; see :mod:`streamfeed.storage.listing`."""
        return resolve(uris)
