"""The manifest of a folder of shards, ``index.json``: what each of them holds, and where it can be entered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from streamfeed.errors import CorruptShardError
from streamfeed.formats.marks import Counted
from streamfeed.storage.sums import Sums

__all__ = ["MANIFEST", "Manifest", "ShardEntry"]

MANIFEST = "index.json"
"""The name of the manifest; listings pass over it."""

_VERSION = 1
_SELF = "checksum"
_ADVICE = "restore it, or make it again with streamfeed index"


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard: its ``name`` relative to the folder, stored bytes, checksums, and records with their marks.

    ``tokens`` is their number where it is known. ``version`` tells the file from one that takes its place (an etag, or
    bytes and time); empty for shards that were made with the manifest, since then it would differ between two runs.
    """

    name: str
    size: int
    sums: Sums
    counted: Counted
    tokens: int | None = None
    version: str = ""
    kind: str = ""
    """what the shard is read as, where the manifest's format does not say it"""

    def to_json(self) -> dict[str, Any]:
        """Return this as what JSON can say."""
        optional = {"tokens": self.tokens, "version": self.version or None, "kind": self.kind or None}
        return {
            "name": self.name,
            "size": self.size,
            **self.sums._asdict(),
            **self.counted.to_json(),
            **{name: value for name, value in optional.items() if value is not None},
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> ShardEntry:
        """Return what :meth:`to_json` gave."""
        return cls(
            str(found["name"]),
            int(found["size"]),
            Sums(str(found["sha256"]), int(found["block"]), str(found["crcs"])),
            Counted.from_json(found),
            found.get("tokens"),
            found.get("version", ""),
            found.get("kind", ""),
        )


@dataclass(frozen=True)
class Manifest:
    """The shards in order, the ``format`` that they have, and what they were made of, if they were.

    ``source`` and ``settings`` are JSON. Two manifests of the same shards and settings are the same bytes.
    """

    format: str
    shards: tuple[ShardEntry, ...]
    source: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The records of all shards."""
        return sum(shard.counted.records for shard in self.shards)

    @property
    def size(self) -> int:
        """The stored bytes of all shards."""
        return sum(shard.size for shard in self.shards)

    @property
    def tokens(self) -> int | None:
        """The tokens of all shards, None where they are not known."""
        known = [shard.tokens for shard in self.shards if shard.tokens is not None]
        return sum(known) if known and len(known) == len(self.shards) else None

    def to_bytes(self) -> bytes:
        """Return the file: JSON with a checksum of itself."""
        said = {
            "version": _VERSION,
            "format": self.format,
            "records": self.records,
            "size": self.size,
            **({} if self.tokens is None else {"tokens": self.tokens}),
            "source": self.source,
            "settings": self.settings,
            "shards": [shard.to_json() for shard in self.shards],
        }
        return orjson.dumps({**said, _SELF: _checksum(said)}, option=orjson.OPT_INDENT_2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, shown: str) -> Manifest:
        """Return what :meth:`to_bytes` gave.

        Raises :class:`CorruptShardError`, naming the manifest ``shown``, for one that was changed or is none of ours.
        """
        try:
            said = orjson.loads(data)
            told = said.pop(_SELF)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CorruptShardError(shown, "", f"this is no manifest of shards ({error!r})", _ADVICE) from error
        if told != _checksum(said):
            raise CorruptShardError(
                shown, "", "the manifest was changed: its checksum is not that of its text", _ADVICE
            )
        try:
            if said["version"] != _VERSION:
                raise CorruptShardError(shown, "", f"it has version {said['version']!r}, not {_VERSION}", _ADVICE)
            shards = tuple(map(ShardEntry.from_json, said["shards"]))
            return cls(str(said["format"]), shards, said["source"], said["settings"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptShardError(shown, "", f"the manifest lacks what it must have ({error!r})", _ADVICE) from error


def _checksum(said: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()
