"""What provenance says, held against the shards: the records that it names are read again, and encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import Cursor, Extent
from streamfeed.storage.files import ShardFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamfeed.formats.protocol import Value
    from streamfeed.loader.provenance import Piece, RecordOrigin, TracedBatch
    from streamfeed.plan.plan import Plan


class Shards:
    """The records of a plan, read again without a window, a lane or a cursor."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._read: dict[tuple[int, int], list[Value]] = {}

    def text(self, record: RecordOrigin) -> str:
        """Return the text of a record by its number, after checking that its cursor leads there too."""
        source = self._plan.sources[record.source]
        shard = int(source.units.shard[record.unit])
        file = ShardFile(source.shards.url(shard), int(source.shards.sizes[shard]))
        assert record.shard == file.shard
        reader, extent = make_format(source.shards.kind(shard), source.shape), Extent(record.start, record.stop)
        assert extent == source.units.extent(record.unit)
        key = (record.source, record.unit)
        if key not in self._read:
            self._read[key] = [value for chunk in reader.read(file, extent, Cursor()) for value in chunk.values]
        found = self._read[key][record.record]
        again = next(iter(reader.read(file, extent, Cursor(record.seek, record.skip))))
        assert again.values[0] == found
        assert isinstance(found, str)
        return found


def check_row(
    row: Sequence[int],
    pieces: Sequence[Piece],
    shards: Shards,
    encode: Callable[[str], list[int]],
    sample: Callable[[list[str], int], str] = lambda texts, _: texts[0],
) -> int:
    """Check that the ids of a row are those of the samples that its pieces name; return how many tokens these have.

    ``sample``: what the map function makes of texts, by its number.
    """
    column = 0
    for piece in pieces:
        assert piece.begin == column, "pieces lie side by side"
        column = piece.end
        made = encode(sample([shards.text(record) for record in piece.records], piece.sample))
        assert list(row[piece.begin : piece.end]) == made[piece.token : piece.token + piece.end - piece.begin]
    return column


def numbered_rows(batches: Iterable[TracedBatch]) -> dict[int, tuple[list[int], tuple[Piece, ...]]]:
    """Return the rows of batches, with their pieces, by number in the stream."""
    return {
        number: (ids, pieces)
        for batch in batches
        for number, ids, pieces in zip(
            batch.provenance.numbers, batch["input_ids"].tolist(), batch.provenance, strict=True
        )
    }


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Return what encodes a document: its ids and the EOS."""
    return lambda text: [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
