"""Shards of tokens: documents that were encoded before, each framed as the tokenizer's engine frames it.

An Arrow file with one column ``ids``, lists of the smallest unsigned integers that hold the vocabulary, in batches with
a hash each; its metadata names the tokenizer by its fingerprint.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import xxhash

from streamfeed.errors import ConfigError, CorruptShardError, FieldError
from streamfeed.formats.arrow_messages import blocks_of_footer
from streamfeed.formats.code_points import FIELD, text_of_ids
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streamfeed.formats.shape import Shape
    from streamfeed.storage.files import ShardFile

__all__ = ["HASH", "META", "TokenBatch", "TokenHead", "Tokens", "batch_hash", "token_batches"]

META = b"streamfeed"
HASH = b"xxh3"
_BROKEN = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
_CHUNK = 1 << 18  # tokens whose documents are made values at a time


class TokenHead(NamedTuple):
    """What a shard says of itself: the tokenizer's ``fingerprint`` and ``name``, and its ``vocabulary``."""

    fingerprint: str
    vocabulary: int
    name: str


class Tokens:
    """Reads documents of ids, as records ``{"tokens": characters}``; a document may be null.

    Extents are numbers of batches, as a cursor's ``seek``; ``skip`` are the documents passed in the batch. Raises
    :class:`FieldError` for shards of another tokenizer than the shape's.
    """

    name = "tokens"

    def __init__(self, shape: Shape) -> None:
        strange = next((field.name or field.key for field in shape.fields if field.key != FIELD), shape.text)
        if strange not in {None, "text"}:
            raise ConfigError(f"shards of tokens have no field {strange!r}: a record is a document of ids")
        self._tokenizer = shape.tokenizer

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard between batches, by their stored bytes; reads the footer. ``None`` for a damaged one."""
        try:
            with closing(file.open()) as raw:
                sizes = [block.nbytes for block in blocks_of_footer(raw, file)[1]]
        except CorruptShardError:
            return None
        pieces: list[Piece] = []
        start = total = 0
        for number, size in enumerate(sizes):
            if total and total + size > max_bytes:
                pieces.append(Piece(Extent(start, number), total))
                start, total = number, 0
            total += size
        return [*pieces, Piece(Extent(start, len(sizes)), total)]

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the documents of the extent's batches from ``cursor`` on; see :class:`Format`."""
        with closing(file.open()) as raw:
            raw.expect(0, file.size)
            batches, head = _opened(raw, file)
            self._check(head, file)
            count = batches.num_record_batches
            stop = count if extent.stop < 0 else min(extent.stop, count)
            skip = cursor.skip
            for number in range(cursor.seek or extent.start, stop):
                ids = _batch(batches, number, file)
                if skip < len(ids):
                    yield from _chunks(ids, number, skip)
                skip = max(0, skip - len(ids))

    def _check(self, head: TokenHead, file: ShardFile) -> None:
        if self._tokenizer and head.fingerprint != self._tokenizer:
            cause = f"was encoded with tokenizer {head.name} ({head.fingerprint}), the stream's is {self._tokenizer}"
            raise FieldError(file.shard, "", cause, "use that tokenizer, or convert the texts again")


class TokenBatch(NamedTuple):
    """A batch of a shard: its documents, their tokens, the bytes that these take, and the byte where it begins."""

    documents: int
    tokens: int
    nbytes: int
    begin: int


def token_batches(file: ShardFile) -> list[TokenBatch]:
    """Return every batch, checked; reads them all. Raises as reading does."""
    with closing(file.open()) as raw:
        raw.expect(0, file.size)
        begins = [block.begin for block in blocks_of_footer(raw, file)[1]]
        batches, _ = _opened(raw, file)
        found = ((_batch(batches, number, file), begin) for number, begin in enumerate(begins))
        return [TokenBatch(len(ids), len(ids.flatten()), ids.flatten().nbytes, begin) for ids, begin in found]


def batch_hash(ids: Any) -> bytes:  # noqa: ANN401
    """Return the hash of an array of lists of ids: of the ids, of where documents end, and of which are null."""
    digest = xxhash.xxh3_64(ids.flatten().to_numpy(zero_copy_only=False).tobytes())
    digest.update(
        np.asarray(ids.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64).tobytes()
    )
    return digest.hexdigest().encode()


def _opened(raw: Any, file: ShardFile) -> tuple[Any, TokenHead]:  # noqa: ANN401
    blocks_of_footer(raw, file)  # says what is wrong with a shard that is cut off
    try:
        batches = pa.ipc.open_file(raw)
        said = orjson.loads(batches.schema.metadata[META])
        if not pa.types.is_large_list(batches.schema.field("ids").type):
            raise ValueError("its ids are no lists")
        return batches, TokenHead(str(said["tokenizer"]), int(said["vocabulary"]), str(said["name"]))
    except _BROKEN as error:
        cause = f"this is no shard of tokens ({type(error).__name__}: {error})"
        raise CorruptShardError(file.shard, "footer", cause, "name it by what it holds, or write it again") from error


def _batch(batches: Any, number: int, file: ShardFile) -> Any:  # noqa: ANN401
    try:
        found, said = batches.get_batch_with_custom_metadata(number)
        found.validate(full=True)
        ids = found.column("ids")
        whole = said[HASH] == batch_hash(ids)
    except _BROKEN as error:
        cause = f"it is damaged ({type(error).__name__}: {error})"
        raise CorruptShardError(file.shard, f"batch {number}", cause, "copy the shard again") from error
    if not whole:
        raise CorruptShardError(
            file.shard, f"batch {number}", "its hash is not that of its ids", "copy the shard again"
        )
    return ids


def _chunks(ids: Any, number: int, skip: int) -> Iterator[Chunk]:  # noqa: ANN401
    null = ids.is_null().to_pylist() if ids.null_count else None
    bounds = np.asarray(ids.offsets.to_numpy(), dtype=np.int64)
    flat = ids.values.to_numpy(zero_copy_only=False)
    while skip < len(ids):
        stop = int(bounds.searchsorted(bounds[skip] + _CHUNK, side="right")) - 1
        stop = min(max(stop, skip + 1), len(ids))
        yield Chunk(number, skip, _values(flat, bounds, null, range(skip, stop)))
        skip = stop


def _values(flat: NDArray[Any], bounds: NDArray[np.int64], null: list[bool] | None, rows: range) -> list[Value]:
    first = int(bounds[rows.start])
    text = text_of_ids(flat[first : int(bounds[rows.stop])])
    cuts = (bounds[rows.start : rows.stop + 1] - first).tolist()
    values: list[Value] = [f'{{"{FIELD}":"{text[cuts[i] : cuts[i + 1]]}"}}' for i in range(len(rows))]
    if null is not None:
        values = [None if null[row] else value for row, value in zip(rows, values, strict=True)]
    return values
