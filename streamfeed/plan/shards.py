"""The shards and units of one source, as arrays: a million of them are a few flat buffers, not a million objects."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.formats.protocol import Extent

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
    kind: str
    extent: Extent
    stride: Stride


@dataclass(frozen=True, slots=True)
class ShardTable:
    """Shards of one source.

    ``text``: uint8, all URLs in UTF-8; ``ends``: int64 ``[n]``, where each ends; ``sizes``: int64 ``[n]``, bytes;
    ``kinds``: uint8 ``[n]``, index into ``kind_names``.
    """

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    kind_names: tuple[str, ...]

    @classmethod
    def build(cls, urls: Sequence[str], sizes: Sequence[int], kinds: Sequence[str]) -> ShardTable:
        """Make the table of parallel lists."""
        encoded = [url.encode(errors="surrogateescape") for url in urls]  # a file's name need not be UTF-8
        names = tuple(sorted(set(kinds)))
        index = {name: i for i, name in enumerate(names)}
        return cls(
            text=np.frombuffer(b"".join(encoded), dtype=np.uint8),
            ends=np.cumsum([len(url) for url in encoded], dtype=np.int64),
            sizes=np.asarray(sizes, dtype=np.int64),
            kinds=np.asarray([index[kind] for kind in kinds], dtype=np.uint8),
            kind_names=names,
        )

    def __len__(self) -> int:
        return len(self.ends)

    def url(self, shard: int) -> str:
        """Return the URL of shard ``shard``."""
        start = int(self.ends[shard - 1]) if shard else 0
        return self.text[start : int(self.ends[shard])].tobytes().decode(errors="surrogateescape")

    def kind(self, shard: int) -> str:
        """Return the kind of shard ``shard``, as :func:`streamfeed.formats.detect.make_format` takes it."""
        return self.kind_names[int(self.kinds[shard])]


@dataclass(frozen=True, slots=True)
class UnitTable:
    """Units of one source, in listed order.

    All int64 ``[n]``: ``shard``, extent ``start`` and ``stop``, stride ``phase`` and ``step``, and ``nbytes``, the
    stored bytes that the unit stands for (at least 1; a stride counts its share).
    """

    shard: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    phase: NDArray[np.int64]
    step: NDArray[np.int64]
    nbytes: NDArray[np.int64]

    @classmethod
    def build(cls, rows: Sequence[tuple[int, int, int, int, int, int]]) -> UnitTable:
        """Make the table of ``(shard, start, stop, phase, step, nbytes)`` rows."""
        columns = np.asarray(rows, dtype=np.int64).reshape(-1, len(fields(cls))).T
        return cls(*(np.ascontiguousarray(column) for column in columns))

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
        )

    def first_strides(self) -> NDArray[np.int64]:
        """Return the indices of units that, read without their stride, cover every record once."""
        return np.flatnonzero(self.phase == 0)

    def extent(self, unit: int) -> Extent:
        """Return the extent of unit ``unit``."""
        return Extent(int(self.start[unit]), int(self.stop[unit]))

    def stride(self, unit: int) -> Stride:
        """Return the stride of unit ``unit``."""
        return Stride(int(self.phase[unit]), int(self.step[unit]))
