"""Lines under gzip or zstd: lines and characters may straddle members and frames."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Literal

from streamfeed.formats.gz import gzip_steps
from streamfeed.formats.lines import LineDecoder, refuse_foreign
from streamfeed.formats.pieces import LineCutter, Run, Step, coalesced
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece
from streamfeed.formats.zst import zstd_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["CompressedLines", "Compression", "unpacked"]

Compression = Literal["gz", "zst"]
_STEPS: dict[Compression, Callable[[RawFile, ShardFile, int, int], Iterator[Step]]] = {
    "gz": gzip_steps,
    "zst": zstd_steps,
}


def unpacked(raw: RawFile, file: ShardFile, compression: Compression, start: int = 0, stop: int = -1) -> Iterator[Step]:
    """Yield the decompressed bytes from compressed byte ``start`` on, of frames before ``stop``; see :class:`Step`."""
    return _STEPS[compression](raw, file, start, stop)


class CompressedLines:
    """Reads the records that a decoder finds in lines under ``gz`` or ``zst``.

    A cursor's ``seek`` is the compressed byte where a zstd frame begins (0 under gzip), ``skip`` counts as
    :mod:`streamfeed.formats.pieces` says. The extent is the whole shard, or zstd frames, as the manifest beside a shard
    tells them: from one that begins a line to another that does.
    """

    def __init__(self, decoder: LineDecoder, compression: Compression) -> None:
        self.name = decoder.name
        self._decoder = decoder
        self._compression = compression

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:  # noqa: ARG002
        """Return ``None``: gzip has no way in, and zstd frames are found only by reading them."""
        return None

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the records from ``cursor`` on; see :class:`Format`."""
        if (extent.start or extent.stop >= 0) and self._compression == "gz":
            raise ValueError(f"a gzip shard is read whole, not as {extent}")
        skip = cursor.skip
        start = cursor.seek or extent.start
        with closing(file.open()) as raw:
            raw.expect(start, file.size if extent.stop < 0 else extent.stop)
            for run in self._runs(raw, file, start, extent.stop):
                dropped = min(skip, len(run.lines))
                skip -= dropped
                if dropped < len(run.lines):
                    yield self._chunk(run.seek, run.skip + dropped, run.lines[dropped:])

    def _runs(self, raw: RawFile, file: ShardFile, start: int, stop: int) -> Iterator[Run]:
        cutter = LineCutter(start, file.shard, blanks=self._decoder.blanks)
        first = start == 0
        for step in coalesced(unpacked(raw, file, self._compression, start, stop)):
            if first:
                refuse_foreign(step.data, file.shard, f"compressed {self._decoder.what}")
                first = False
            yield from cutter.feed(step)
        yield from cutter.finish()

    def _chunk(self, seek: int, skip: int, lines: list[bytes]) -> Chunk:
        decoded = self._decoder.decode(lines)
        prefix = f"zstd frame at byte {seek}, record" if seek else "record"
        return Chunk(seek, skip, decoded.place(lambda index: f"{prefix} {skip + index}"))
