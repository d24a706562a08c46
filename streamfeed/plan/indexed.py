"""Shards cut by the manifest beside them, where there is one: those that only reading would show a way into."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import xxhash

from streamfeed.errors import CorruptShardError, StreamfeedError
from streamfeed.formats.manifest import MANIFEST, Manifest, ShardEntry
from streamfeed.formats.protocol import Extent, LoneExtent, Piece
from streamfeed.storage.output import output_at
from streamfeed.storage.urls import is_remote, redact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from streamfeed.formats.marks import Mark
    from streamfeed.plan.shards import ShardTable

__all__ = ["Indexed"]

logger = logging.getLogger(__name__)

_DEEPEST = 1
"""Folders above a shard's own in which its manifest may lie."""

_KINDS = ("tar", "jsonl.zst", "lines.zst")
"""Kinds that have ways in, which a reader of the shard alone finds by reading all of it."""


class Indexed:
    """The manifests beside the shards of ``table``, read when they are first asked for.

    They are never needed, and never believed of a shard that is another now.
    """

    def __init__(self, table: ShardTable, options: Mapping[str, Any] | None) -> None:
        self._table = table
        self._options = options
        self._known: dict[str, dict[str, ShardEntry]] = {}
        self._digest = xxhash.xxh3_64()
        self._used: set[int] = set()

    @property
    def digest(self) -> str:
        """A hash of what was used of the manifests, empty where nothing was: where shards are cut is the stream."""
        return self._digest.hexdigest() if self._used else ""

    def pieces(self, shard: int, max_bytes: int) -> list[Piece] | None:
        """Return extents of shard ``shard`` of about ``max_bytes`` stored bytes; None where no manifest tells any."""
        if self._table.kind(shard) not in _KINDS:
            return None
        entry = self._entry(shard)
        if entry is None:
            return None
        marks = [mark for mark in entry.counted.marks if not mark.skip]
        if len(marks) < 2:
            return None
        if shard not in self._used:
            self._used.add(shard)
            self._digest.update(f"{shard}:{[mark.seek for mark in marks]}".encode())
        return _cut(marks, entry.size, max_bytes, alone=entry.counted.regular)

    def _entry(self, shard: int) -> ShardEntry | None:
        parts = self._table.url(shard).split("/")
        for cut in range(len(parts) - 1, max(0, len(parts) - 2 - _DEEPEST), -1):
            folder = "/".join(parts[:cut])
            if not folder or folder.endswith("/"):
                break
            entry = self._manifest(folder).get("/".join(parts[cut:]))
            if entry is not None:
                return entry if self._fits(entry, shard) else None
        return None

    def _fits(self, entry: ShardEntry, shard: int) -> bool:
        size, version = int(self._table.sizes[shard]), self._table.version(shard)
        if entry.size == size and (not entry.version or not version or entry.version == version):
            return True
        logger.warning(
            "%s is another than %s beside it says, which is ignored for it; make that again with streamfeed index",
            redact(self._table.url(shard)),
            MANIFEST,
        )
        return False

    def _manifest(self, folder: str) -> dict[str, ShardEntry]:
        if folder not in self._known:
            self._known[folder] = self._read(folder)
        return self._known[folder]

    def _read(self, folder: str) -> dict[str, ShardEntry]:
        shown = f"{redact(folder)}/{MANIFEST}"
        try:
            data = output_at(folder, self._options if is_remote(folder) else None).read(MANIFEST)
            manifest = None if data is None else Manifest.from_bytes(data, shown)
        except CorruptShardError as error:  # others call their files so too, and it is never needed
            logger.info("%s is not used: %s", shown, error)
            return {}
        except (StreamfeedError, OSError) as error:  # read another time, it would have the stream cut otherwise
            logger.warning("%s cannot be read, and shards are cut without it: %s", shown, error)
            return {}
        return {} if manifest is None else {entry.name: entry for entry in manifest.shards}


def _cut(marks: list[Mark], size: int, max_bytes: int, *, alone: bool) -> list[Piece]:
    extent = LoneExtent if alone else Extent
    pieces: list[Piece] = []
    start = 0
    for number, mark in enumerate(marks[1:], 1):
        end = marks[number + 1].seek if number + 1 < len(marks) else size
        if end - start > max_bytes and mark.seek > start:
            pieces.append(Piece(extent(start, mark.seek), mark.seek - start))
            start = mark.seek
    return [*pieces, Piece(extent(start, size), size - start)]
