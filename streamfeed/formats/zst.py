"""Zstandard as a stream of decompressed steps: frames are walked block by block.

The block headers say where a frame ends, so frame starts are known to the byte without an index or sizes in the frame
headers, a read from a frame asks for bytes from there on only, and since a block holds at most 128 KiB no input can
make the output of a step grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import zstandard

from streamfeed.errors import CorruptShardError
from streamfeed.formats.pieces import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["zstd_steps"]

_READ = 1 << 18
_MAGIC = b"\x28\xb5\x2f\xfd"
_HEADER = 18  # bytes of the longest frame header
_WINDOW = 1 << 31
_RLE, _RESERVED = 1, 3
_BASE = 1 << 20
"""Decompressed bytes after which the next frame becomes the cursor's ``seek``: tiny frames share one."""


def zstd_steps(raw: RawFile, file: ShardFile, start: int) -> Iterator[Step]:
    """Yield the decompressed bytes of the frames from byte ``start`` on, each step with its base.

    A base is ``start``, or the byte offset of a frame at least 1 MiB of output after the base before: a property of the
    bytes, however they were read. Raises :class:`CorruptShardError` with the compressed byte.
    """
    raw.seek(start)
    source = _Source(raw, file, start)
    if start == 0 and not source.has(1):
        raise source.corrupt("the shard is empty, which no zstd file is", "write it again")
    base, since = start, 0
    while source.has(1):
        if since >= _BASE:
            base, since = source.position, 0
        for data in _frame(source):
            since += len(data)
            yield Step(base, data)


def _frame(source: _Source) -> Iterator[bytes]:
    begin = source.position
    if not source.has(4):
        raise _unknown(source, begin)
    magic = source.peek(4)
    if magic[1:] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F:
        source.need(8, begin)
        size = int.from_bytes(source.take(8)[4:], "little")
        source.skip(size, begin)
        return
    if magic != _MAGIC:
        raise _unknown(source, begin)
    yield from _blocks(source, begin)


def _unknown(source: _Source, begin: int) -> CorruptShardError:
    if begin:
        return source.corrupt("there is garbage after the last zstd frame", "the shard is damaged: copy it again")
    return source.corrupt("this is no zstd data", "name the shard by what it holds, or set the source's format")


def _blocks(source: _Source, begin: int) -> Iterator[bytes]:
    source.need(6, begin)
    source.has(_HEADER)
    head = source.peek(_HEADER)
    try:
        size = zstandard.frame_header_size(head)
        source.need(size, begin)
        check = zstandard.get_frame_parameters(head).has_checksum
    except zstandard.ZstdError as error:
        raise source.corrupt(f"the zstd frame header is damaged ({error})", "copy the shard again") from error
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    yield from _unpacked(source, unpacker, size, begin)
    last = False
    while not last:
        source.need(3, begin)
        header = int.from_bytes(source.peek(3), "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            raise source.corrupt("the zstd block header is damaged", "copy the shard again")
        yield from _unpacked(source, unpacker, 3 + (1 if kind == _RLE else size), begin)
    if check:  # fed alone, so that the last block's lines come before a check sum that is cut off or wrong
        yield from _unpacked(source, unpacker, 4, begin)


def _unpacked(source: _Source, unpacker: zstandard.ZstdDecompressionObj, count: int, begin: int) -> Iterator[bytes]:
    source.need(count, begin)
    try:
        output = source.unpack(unpacker, count)
    except zstandard.ZstdError as error:
        raise source.corrupt(f"the zstd data is damaged here ({error})", "copy the shard again") from error
    source.take(count)
    if output:
        yield output


class _Source:
    """Compressed bytes with their position."""

    def __init__(self, raw: RawFile, file: ShardFile, start: int) -> None:
        self._raw = raw
        self._file = file
        self._data = b""
        self._at = 0
        self._start = start  # the file offset of _data[0]

    @property
    def position(self) -> int:
        """The byte offset in the file of what is taken next."""
        return self._start + self._at

    def has(self, count: int) -> bool:
        """Return whether ``count`` more bytes can be had, after reading what that takes."""
        while len(self._data) - self._at < count:
            block = self._raw.read(_READ)
            if not block:
                return False
            self._start += self._at
            self._data = self._data[self._at :] + block
            self._at = 0
        return True

    def need(self, count: int, begin: int) -> None:
        """Raise unless ``count`` more bytes can be had."""
        if not self.has(count):
            cause = f"the zstd frame that begins at byte {begin:,} is cut off"
            self._at = len(self._data)
            raise self.corrupt(cause, "the shard is truncated: copy it again")

    def peek(self, count: int) -> bytes:
        """Return the next ``count`` bytes (fewer at the end of what was read)."""
        return self._data[self._at : self._at + count]

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes and pass them."""
        found = self.peek(count)
        self._at += count
        return found

    def unpack(self, unpacker: zstandard.ZstdDecompressionObj, count: int) -> bytes:
        """Decompress the next ``count`` bytes, without passing them."""
        stage = self._file.stats.stages.decompress
        with stage.busy:
            output = unpacker.decompress(self.peek(count))
        stage.count(1, len(output))
        return output

    def skip(self, count: int, begin: int) -> None:
        """Pass ``count`` bytes, without reading what is not read yet."""
        target = self.position + count
        if target > self._file.size:
            self.need(count, begin)
        if count <= len(self._data) - self._at:
            self._at += count
            return
        self._raw.seek(target)
        self._start, self._data, self._at = target, b"", 0

    def corrupt(self, cause: str, advice: str) -> CorruptShardError:
        """Return the error at this byte."""
        return CorruptShardError(self._file.shard, f"byte {self.position}", cause, advice)
