"""The buffers of one Arrow batch, read as they are needed.

Buffers that are not compressed are read in slices; a compressed one is one frame, and is decompressed whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamfeed.errors import CorruptShardError, ReadError
from streamfeed.formats.arrow_messages import Batch, Message, damaged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.formats.arrow_column import Place
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["Buffers", "buffer_of"]

_MOST_BUFFER = 1 << 32  # bytes of a decompressed buffer: more is damage
_SMALL_BODY = 1 << 20  # bytes of a body that is read as a whole from a remote store


class Buffers:
    """The buffers of one batch."""

    def __init__(self, raw: RawFile, file: ShardFile, message: Message, batch: Batch) -> None:
        self._raw = raw
        self._file = file
        self._message = message
        self._batch = batch
        self._unpacked: dict[int, memoryview] = {}
        self.rows = batch.rows
        self.variadic = batch.variadic
        self._whole = message.end - message.body <= _SMALL_BODY
        if self._whole:
            raw.expect(message.body, message.end)

    def expect(self, place: Place, number: int, start: int) -> None:
        """Say that the buffer will be read from ``start`` on."""
        if not self._whole:
            offset, size = self._range(place, number)
            self._raw.expect(self._message.body + offset + start, self._message.body + offset + size)

    def read(self, place: Place, number: int, start: int, stop: int) -> bytes | memoryview:
        """Return the bytes ``[start, stop)`` of buffer ``number`` of the column at ``place``."""
        offset, size = self._range(place, number)
        if start == stop:
            return b""
        if self._batch.codec is not None:
            data = self._unpacked_buffer(offset, size)
            if not 0 <= start <= stop <= len(data):
                raise self.damaged("a buffer is too short for its rows")
            return data[start:stop]
        if not 0 <= start <= stop <= size:
            raise self.damaged("a buffer is too short for its rows")
        return self._bytes(offset + start, stop - start)

    def whole(self, place: Place, number: int) -> bytes | memoryview:
        """Return buffer ``number`` of the column at ``place``."""
        offset, size = self._range(place, number)
        if self._batch.codec is not None:
            return self._unpacked_buffer(offset, size)
        if size:
            self.expect(place, number, 0)
        return self._bytes(offset, size)

    def valid(self, nodes: list[Place], start: int, stop: int) -> NDArray[np.bool_] | None:
        """Return which of the rows are not null, None where all are not; ``nodes`` are those that may be null."""
        found: NDArray[np.bool_] | None = None
        for place in nodes:
            if not self._range(place, 0)[1] or not self._batch.nodes[place.node][1]:
                continue
            packed = np.frombuffer(self.read(place, 0, start // 8, -(-stop // 8)), np.uint8)
            bits = np.unpackbits(packed, bitorder="little")[start % 8 :][: stop - start].astype(np.bool_)
            found = bits if found is None else found & bits
        return found

    def damaged(self, cause: str) -> CorruptShardError:
        """Return the error for this batch."""
        return damaged(self._file, self._message.begin, cause)

    def _range(self, place: Place, number: int) -> tuple[int, int]:
        index = buffer_of(self._batch, place) + number
        if index >= len(self._batch.buffers) or place.node >= len(self._batch.nodes):
            raise self.damaged("the batch has too few buffers for its schema")
        return self._batch.buffers[index]

    def _unpacked_buffer(self, offset: int, size: int) -> memoryview:
        if offset not in self._unpacked:
            self._unpacked[offset] = memoryview(self._unpack(offset, size))
        return self._unpacked[offset]

    def _unpack(self, offset: int, size: int) -> bytes | Any:  # noqa: ANN401
        if not size:
            return b""
        data = self._bytes(offset, size)
        length = int.from_bytes(data[:8], "little", signed=True)
        if length == -1:
            return data[8:]
        if not 0 <= length <= _MOST_BUFFER:
            raise self.damaged(f"a compressed buffer says that it holds {length:,} bytes")
        try:  # as a stream: a codec gives a buffer of the length that it is told, even where there was less to put in
            with pa.CompressedInputStream(pa.BufferReader(data[8:]), self._batch.codec) as stream:
                found = stream.read_buffer(length)
                more = stream.read(1)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self.damaged(f"a compressed buffer is damaged ({error})") from error
        if len(found) < length or more:
            raise self.damaged(f"a compressed buffer does not hold the {length:,} bytes that it says")
        return found

    def _bytes(self, offset: int, size: int) -> bytes:
        begin = self._message.body + offset
        data = self._raw.read_at(begin, size)
        if len(data) < size:
            cause = f"the file ended here while {self._file.size:,} bytes were expected"
            raise ReadError(self._file.shard, f"byte {begin + len(data)}", cause, "it was changed while it was read")
        return data


def buffer_of(batch: Batch, place: Place) -> int:
    """Return the number of the first buffer of the column at ``place``."""
    return place.buffer + sum(batch.variadic[: place.views])
