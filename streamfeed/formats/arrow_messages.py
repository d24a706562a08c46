"""The messages of Arrow IPC: where each begins, what it holds, without its body.

The file format is a stream between two marks, with a footer that says where the batches are. Here the metadata is read
by itself, so that bodies are passed over, and of a body only the buffers of one column are read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import CorruptShardError
from streamfeed.formats.flatbuffer import Table

if TYPE_CHECKING:
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["ARROW_FILE", "ARROW_STREAM", "Batch", "Block", "Message", "blocks_of_footer", "damaged", "read_message"]

ARROW_FILE = b"ARROW1"
ARROW_STREAM = b"\xff\xff\xff\xff"
_HEAD = 4096
_MOST_METADATA = 1 << 28
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_CODECS = {0: "lz4", 1: "zstd"}
_BROKEN = (struct.error, ValueError, KeyError)


class Batch(NamedTuple):
    """A record batch, or a dictionary: ``nodes`` are rows and nulls, ``buffers`` offsets in the body and bytes."""

    rows: int
    nodes: list[tuple[int, int]]
    buffers: list[tuple[int, int]]
    codec: str | None
    variadic: list[int]


class Message(NamedTuple):
    """One message: ``[begin, end)`` in the file, its body from ``body`` on.

    ``batch`` is None in a schema. ``dictionary`` is the id of the dictionary that it holds, -1 where it holds none;
    ``delta`` says that it continues that dictionary.
    """

    begin: int
    body: int
    end: int
    metadata: bytes
    batch: Batch | None
    dictionary: int
    delta: bool


def read_message(raw: RawFile, file: ShardFile, begin: int) -> Message | None:
    """Return the message at byte ``begin``, None at the end of the stream.

    Raises :class:`CorruptShardError` where the shard is cut off or damaged.
    """
    head = raw.read_at(begin, min(_HEAD, max(0, file.size - begin)))
    prefix = 8 if head.startswith(ARROW_STREAM) else 4  # before Arrow 0.15 there was no mark in front of the length
    if len(head) < prefix:
        cause = "the stream is cut off: it ends without its end mark"
        raise CorruptShardError(
            file.shard, f"byte {begin + len(head)}", cause, "write the shard again, or copy it again"
        )
    length = int.from_bytes(head[prefix - 4 : prefix], "little", signed=True)
    if length == 0:
        return None
    if not 0 < length <= _MOST_METADATA:
        raise damaged(file, begin, f"a message of {length:,} bytes of metadata")
    body = begin + prefix + length
    if body > file.size:
        raise _cut(file, begin)
    metadata = head[prefix : prefix + length]
    if len(metadata) < length:
        metadata = raw.read_at(begin + prefix, length)
    try:
        message = _parsed(metadata, begin, body)
    except _BROKEN as error:
        raise damaged(file, begin, f"the message's metadata is damaged ({error})") from error
    if message.end < body or (message.batch and _outside(message.batch, message.end - body)):
        raise damaged(file, begin, "the message's metadata is damaged: its buffers do not fit its body")
    if message.end > file.size:
        raise _cut(file, begin)
    return message


class Block(NamedTuple):
    """Where a message begins, and how long its body is."""

    begin: int
    nbytes: int


def blocks_of_footer(raw: RawFile, file: ShardFile) -> tuple[list[Block], list[Block]]:
    """Return where the dictionaries and the record batches of the file format are, by its footer."""
    tail = raw.read_at(max(0, file.size - 10), min(10, file.size))
    length = int.from_bytes(tail[:4], "little", signed=True)
    if len(tail) < 10 or tail[4:] != ARROW_FILE or not 0 < length <= min(_MOST_METADATA, file.size - 10):
        cause = "this is no Arrow file, or one without its end"
        raise CorruptShardError(file.shard, "footer", cause, "copy the shard again, or name its format")
    try:
        footer = Table.root(raw.read_at(file.size - 10 - length, length))
        found = [[Block(begin, size) for begin, _, size in footer.structs(field, "<qi4xq")] for field in (2, 3)]
    except _BROKEN as error:
        raise CorruptShardError(file.shard, "footer", f"it is damaged ({error})", "copy the shard again") from error
    if not all(0 < block.begin < file.size and block.nbytes >= 0 for blocks in found for block in blocks):
        raise CorruptShardError(file.shard, "footer", "a batch lies outside of the file", "copy the shard again")
    return found[0], found[1]


def damaged(file: ShardFile, begin: int, cause: str) -> CorruptShardError:
    """Return the error for the message at byte ``begin``."""
    return CorruptShardError(file.shard, f"byte {begin}", cause, "copy the shard again, or write it again")


def _cut(file: ShardFile, begin: int) -> CorruptShardError:
    cause = f"the shard is cut off inside the message that begins at byte {begin:,}"
    return CorruptShardError(file.shard, f"byte {file.size}", cause, "copy the shard again")


def _parsed(metadata: bytes, begin: int, body: int) -> Message:
    message = Table.root(metadata)
    kind = message.number(1, "<B")
    header = message.table(2)
    if header is None or kind not in {_SCHEMA, _DICTIONARY, _BATCH}:
        raise ValueError(f"a message of kind {kind}")
    dictionary, delta, batch = -1, False, None
    if kind == _DICTIONARY:
        dictionary, delta = header.number(0, "<q"), bool(header.number(2, "<B"))
        inner = header.table(1)
        if inner is None:
            raise ValueError("a dictionary without values")
        header = inner
    if kind != _SCHEMA:
        batch = _batch(header)
    return Message(begin, body, body + message.number(3, "<q"), metadata, batch, dictionary, delta)


def _batch(header: Table) -> Batch:
    compression = header.table(3)
    return Batch(
        rows=header.number(0, "<q"),
        nodes=[(int(rows), int(nulls)) for rows, nulls in header.structs(1, "<qq")],
        buffers=[(int(offset), int(size)) for offset, size in header.structs(2, "<qq")],
        codec=None if compression is None else _CODECS[compression.number(0, "<b")],
        variadic=[int(count) for (count,) in header.structs(4, "<q")],
    )


def _outside(batch: Batch, size: int) -> bool:
    if batch.rows < 0 or any(count < 0 for count in batch.variadic):
        return True
    return any(offset < 0 or count < 0 or offset + count > size for offset, count in batch.buffers)
