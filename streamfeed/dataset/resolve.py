"""From a config to a plan: list the shards, see their formats, choose the lanes, take the fingerprint."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from streamfeed.encode.tokenizer import TokenizerSpec, load_tokenizer
from streamfeed.errors import SourceError
from streamfeed.formats.detect import make_format, sniff
from streamfeed.formats.hub_shards import fitted
from streamfeed.plan.fingerprint import fingerprint, source_print
from streamfeed.plan.plan import Plan, Rules, SourcePlan
from streamfeed.plan.shards import ShardTable
from streamfeed.plan.split import Splitter, split_sources
from streamfeed.storage.store import Store
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.config import Source, StreamConfig
    from streamfeed.formats.protocol import Piece

__all__ = ["Resolved"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Listed:
    """One source's shards, as found."""

    source: Source
    store: Store
    table: ShardTable
    names: Sequence[str]
    kinds: Sequence[str]

    def splitter(self) -> Splitter:
        """Return the function that cuts a shard of this source."""

        def split(shard: int, max_bytes: int) -> list[Piece] | None:
            table = self.table
            file = self.store.file(table.url(shard), int(table.sizes[shard]), table.version(shard))
            return make_format(self.table.kind(shard), self.source.text).split(file, max_bytes)

        return split


class Resolved:
    """A config whose shards have been listed and whose tokenizer is loaded, once; plans for any number of lanes.

    What was found is logged once. Raises :class:`SourceError` for a URI that means nothing,
    :class:`~streamfeed.errors.ConfigError` for a tokenizer that cannot be loaded.
    """

    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self.tokenizer: TokenizerSpec = load_tokenizer(config.tokenizer)
        self._listed = [_list(source) for source in config.sources]

    @property
    def retries(self) -> int:
        """Requests of listing and planning that were repeated because a store failed."""
        return sum(listed.store.stats.retries for listed in self._listed)

    def plan(self, lanes: int | Literal["auto"] | None = None) -> Plan:
        """Return the plan; ``lanes`` (say, a state's) wins over the config's."""
        config = self.config
        tables = [listed.table for listed in self._listed]
        splitters = [listed.splitter() for listed in self._listed]
        split = split_sources(tables, splitters, lanes or config.lanes, finite=config.epochs is not None)
        prints = [
            source_print(listed.source, listed.names, listed.table.sizes.tolist(), listed.kinds)
            for listed in self._listed
        ]
        return Plan(
            sources=[
                SourcePlan(listed.table, units, listed.source.text, listed.source.weight, listed.source.storage_options)
                for listed, units in zip(self._listed, split.units, strict=True)
            ],
            rules=Rules(
                lanes=split.lanes,
                seq_len=config.seq_len,
                seed=config.seed,
                shuffle_buffer=config.shuffle_buffer,
                window_bytes=config.window_bytes,
                epochs=config.epochs,
                on_error=config.on_error,
                skip_budget=config.skip_budget,
            ),
            fingerprint=fingerprint(config, prints, self.tokenizer.fingerprint, split.lanes),
        )


def _list(source: Source) -> _Listed:
    store = Store(source.storage_options)
    listing, stated = fitted(store.list(source.uris, source.config, source.split), store, source.format)
    kinds = [
        kind or sniff(store.file(url, size, version))
        for kind, url, size, version in zip(stated, listing.urls, listing.sizes, listing.versions, strict=True)
    ]
    shown = redact(source.uris[0])
    counts = ", ".join(f"{count:,} {kind.partition(' ')[0]}" for kind, count in sorted(Counter(kinds).items()))
    logger.info(
        "%s: %s, %.1f MB%s",
        shown if len(source.uris) == 1 else f"{shown} and {len(source.uris) - 1} more",
        counts,
        sum(listing.sizes) / 1e6,
        f"; {listing.ignored:,} hidden or marker files ignored" if listing.ignored else "",
    )
    if not any(listing.sizes):
        raise SourceError(f"{shown}: all {len(listing.sizes)} shards are empty (0 bytes)")
    table = ShardTable.build(listing.urls, listing.sizes, kinds, listing.versions)
    return _Listed(source, store, table, listing.names, kinds)
