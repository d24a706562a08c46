"""The shards and units of one source, as arrays: a million of them are a few flat buffers, not a million objects."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from streamfeed.formats.protocol import Extent, LoneExtent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["ShardTable", "Stride", "Unit", "UnitTable"]


class Stride(NamedTuple):
    """Of a unit's records, those whose ordinal leaves ``phase`` when divided by ``step``; ``Stride()`` is all."""

    phase: int = 0
    step: int = 1


class Unit(NamedTuple):
    """What one lane reads at a time: an extent of a shard, or a stride of one."""

    url: str
    size: int
    version: str
    kind: str
    extent: Extent
    stride: Stride


@dataclass(frozen=True, slots=True)
class ShardTable:
    """Shards of one source.

    ``text``: uint8, all URLs in UTF-8; ``ends``: int64 ``[n]``, where each ends; ``sizes``: int64 ``[n]``, bytes;
    ``kinds``: uint8 ``[n]``, index into ``kind_names``. ``version_text`` and ``version_ends`` hold the versions as
    ``text`` and ``ends`` hold the URLs, and are empty where no store says any.
    """

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    kind_names: tuple[str, ...]
    version_text: NDArray[np.uint8]
    version_ends: NDArray[np.int64]

    @classmethod
    def build(
        cls, urls: Sequence[str], sizes: Sequence[int], kinds: Sequence[str], versions: Sequence[str] = ()
    ) -> ShardTable:
        """Make the table of parallel lists; no ``versions`` is not knowing any."""
        text, ends = _packed(urls)
        version_text, version_ends = _packed(versions if any(versions) else ())
        names = tuple(sorted(set(kinds)))
        index = {name: i for i, name in enumerate(names)}
        return cls(
            text=text,
            ends=ends,
            sizes=np.asarray(sizes, dtype=np.int64),
            kinds=np.asarray([index[kind] for kind in kinds], dtype=np.uint8),
            kind_names=names,
            version_text=version_text,
            version_ends=version_ends,
        )

    def __len__(self) -> int:
        return len(self.ends)

    def url(self, shard: int) -> str:
        """Return the URL of shard ``shard``."""
        return _unpacked(self.text, self.ends, shard)

    def version(self, shard: int) -> str:
        """Return the version of shard ``shard`` when the run planned, empty where it is not known."""
        return _unpacked(self.version_text, self.version_ends, shard) if len(self.version_ends) else ""

    def versions_digest(self) -> str:
        """Return a hash of all versions, empty where none is known."""
        if not len(self.version_ends):
            return ""
        digest = xxhash.xxh3_64(self.version_text.tobytes())
        digest.update(self.version_ends.tobytes())
        return digest.hexdigest()

    def kind(self, shard: int) -> str:
        """Return the kind of shard ``shard``, as :func:`streamfeed.formats.detect.make_format` takes it."""
        return self.kind_names[int(self.kinds[shard])]


def _packed(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    encoded = [text.encode(errors="surrogateescape") for text in texts]  # a file's name need not be UTF-8
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), ends


def _unpacked(text: NDArray[np.uint8], ends: NDArray[np.int64], index: int) -> str:
    start = int(ends[index - 1]) if index else 0
    return text[start : int(ends[index])].tobytes().decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class UnitTable:
    """Units of one source, in listed order.

    All int64 ``[n]``: ``shard``, extent ``start`` and ``stop``, stride ``phase`` and ``step``, and ``nbytes``, the
    stored bytes that the unit stands for (at least 1; a stride counts its share). ``alone``: bool ``[n]``, whether the
    extent can be read alone.
    """

    shard: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    phase: NDArray[np.int64]
    step: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    alone: NDArray[np.bool_]

    @classmethod
    def build(cls, rows: Sequence[tuple[int, int, int, int, int, int]], alone: Sequence[bool] = ()) -> UnitTable:
        """Make the table of ``(shard, start, stop, phase, step, nbytes)`` rows; no ``alone`` is that none is."""
        columns = np.asarray(rows, dtype=np.int64).reshape(-1, len(fields(cls)) - 1).T
        shard, start, stop, phase, step, nbytes = map(np.ascontiguousarray, columns)
        flags = np.asarray(alone, dtype=np.bool_) if alone else np.zeros(len(rows), dtype=np.bool_)
        return cls(shard, start, stop, phase, step, nbytes, flags)

    def __len__(self) -> int:
        return len(self.shard)

    def strided(self, step: int) -> UnitTable:
        """Return every unit cut into ``step`` strides, each of which reads all of it."""
        count = len(self)
        phase = np.tile(np.arange(step, dtype=np.int64), count)
        share = np.maximum(1, np.repeat(self.nbytes, step) // step)
        return UnitTable(
            np.repeat(self.shard, step),
            np.repeat(self.start, step),
            np.repeat(self.stop, step),
            phase,
            np.full(count * step, step, dtype=np.int64),
            share,
            np.repeat(self.alone, step),
        )

    def first_strides(self) -> NDArray[np.int64]:
        """Return the indices of units that, read without their stride, cover every record once."""
        return np.flatnonzero(self.phase == 0)

    def extent(self, unit: int) -> Extent:
        """Return the extent of unit ``unit``."""
        extent = LoneExtent if self.alone[unit] else Extent
        return extent(int(self.start[unit]), int(self.stop[unit]))

    def stride(self, unit: int) -> Stride:
        """Return the stride of unit ``unit``."""
        return Stride(int(self.phase[unit]), int(self.step[unit]))
