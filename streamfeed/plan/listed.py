"""The shards of one source: what its URIs mean, and how each is read."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import SourceError
from streamfeed.formats.detect import make_format, sniff
from streamfeed.formats.hub_shards import fitted
from streamfeed.formats.saved import without_saved_files
from streamfeed.plan.hold_out import shards_read
from streamfeed.plan.shards import ShardTable
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.config import HoldOut, Source
    from streamfeed.formats.shape import Shape
    from streamfeed.storage.store import Store

__all__ = ["Listed", "listed_source"]

logger = logging.getLogger(__name__)


class Listed(NamedTuple):
    """One source's shards, as found; nothing of it is secret, nor bound to a process."""

    table: ShardTable
    names: Sequence[str]
    kinds: Sequence[str]


def listed_source(source: Source, shape: Shape, store: Store, hold_out: HoldOut | None = None) -> Listed:
    """List the shards of ``source`` in ``store``, those that ``hold_out`` chooses; logs what was found.

    Raises :class:`SourceError` where there are none, or only empty files, and
    :class:`~streamfeed.errors.ConfigError` for a ``shape`` that one of their formats cannot have.
    """
    found = without_saved_files(store.list(source.uris, source.config, source.split), store)
    listing, stated = fitted(found, store, source.format)
    if hold_out is not None and hold_out.by == "shard":
        read = shards_read(listing.names, hold_out, redact(source.uris[0]))
        listing, stated = listing.part(read), [stated[index] for index in read]
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
    if "tokens" in kinds and len(set(kinds)) > 1:
        raise SourceError(f"{shown} holds shards of tokens beside others; give these a source of their own")
    for kind in set(kinds) - {"parquet", "arrow", "tokens"}:  # which take any field, and tens of megabytes to import
        make_format(kind, shape)  # refuses what cannot work before any worker starts
    table = ShardTable.build(listing.urls, listing.sizes, kinds, listing.versions)
    return Listed(table, listing.names, kinds)
