"""One source's storage in one process: lists its shards, and opens them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamfeed.config import RetryPolicy
from streamfeed.errors import SourceError
from streamfeed.stats import ReadStats
from streamfeed.storage.fetch import Fetcher
from streamfeed.storage.files import ShardFile
from streamfeed.storage.listing import Listing, resolve
from streamfeed.storage.urls import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.storage.edge import RemoteEdge
    from streamfeed.storage.retry import Retrier

__all__ = ["Store"]


class Store:
    """Where the shards of one source are listed and opened. Made in the process that uses it, never sent to another.

    ``options`` are fsspec's, for the source's URLs; they may hold secrets and appear in no message. ``stats``
    counts what is read. The stores of one process share a ``fetcher``, which bounds what all of them hold.
    ``policy`` says how long faults are borne; ``retrier`` is for tests. Local paths are opened as they are, and
    then nothing of this is used.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        stats: ReadStats | None = None,
        fetcher: Fetcher | None = None,
        policy: RetryPolicy | None = None,
        retrier: Retrier | None = None,
    ) -> None:
        self._options = dict(options or {})
        self.stats = ReadStats() if stats is None else stats
        self._fetcher = fetcher
        self._policy = RetryPolicy() if policy is None else policy
        self._retrier = retrier
        self._edge: RemoteEdge | None = None

    def file(self, url: str, size: int, version: str = "") -> ShardFile:
        """Return the shard at ``url``, of ``size`` bytes and ``version`` when the run planned."""
        return ShardFile(url, size, self.stats, version, self._remote() if is_remote(url) else None)

    def list(self, uris: Sequence[str], config: str | None = None, split: str | None = None) -> Listing:
        """List the shards that ``uris`` mean, in order; see :mod:`streamfeed.storage.listing`.

        ``config`` and ``split`` are of the whole datasets on the Hub that are among them.
        """
        if not any(map(is_remote, uris)):
            return resolve(uris)
        from streamfeed.storage.tree import RemoteTree

        tree = RemoteTree(self._remote())
        if not any(uri.startswith("hf://datasets/") for uri in uris):
            return resolve(uris, tree)
        from streamfeed.storage.hub.tree import HubTree

        hub = HubTree(self._remote(), tree, config, split)
        listing = replace(resolve(uris, hub), datasets=hub.datasets)
        if (config or split) and not hub.datasets:
            raise SourceError(f"{uris[0]}: config and split are those of a whole dataset, not of a path in one")
        return listing

    @property
    def options(self) -> Mapping[str, Any]:
        """The source's storage options."""
        return self._options

    def _remote(self) -> RemoteEdge:
        if self._edge is None:
            from streamfeed.storage.edge import RemoteEdge
            from streamfeed.storage.retry import Retrier

            fetcher = self._fetcher or Fetcher()
            retrier = self._retrier or Retrier(self._policy, self.stats)
            self._edge = RemoteEdge(self._options, self.stats, fetcher, retrier)
        return self._edge
