"""WebDataset tars on files that can be sought: headers first, then only the members that hold the text."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfeed.formats.protocol import Chunk, Cursor, Extent, LoneExtent, Piece, Value
from streamfeed.formats.sample_records import reader_of
from streamfeed.formats.samples import Index, Sample, index_of, member_data
from streamfeed.formats.tar_part import TarPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streamfeed.formats.members import Member
    from streamfeed.formats.samples import SampleReader
    from streamfeed.formats.shape import Shape
    from streamfeed.storage.files import ShardFile

__all__ = ["Tar"]

_CHUNK_BYTES = 1 << 20
_CHUNK_RECORDS = 4096


class Tar:
    """Reads one text of every sample: a member by its extension (``txt``), or a field of a JSON member (``json.text``).

    Of a shape of several fields, each is found so.

    Extents are ranges of bytes, a sample belongs where its first member's header begins. A cursor's ``seek`` is the
    byte of such a header, ``skip`` the samples after it. An extent that can be read alone is entered there; else the
    headers of the whole archive come first, since any member may be of any sample.
    """

    name = "tar"

    def __init__(self, text: str | Shape | SampleReader) -> None:
        self._text = reader_of(text)

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:
        """Cut the shard between samples, by the bytes of the members that are read; reads the headers.

        A damaged shard gives ``None``: reading it says what is wrong, after the samples before.
        """
        with closing(file.open()) as raw:
            raw.expect(0, file.size)
            index = index_of(raw, file)
        if index.failure is not None:
            return None
        pieces: list[Piece] = []
        start = total = 0
        for sample in index.samples:
            size = self._text.stored(sample)
            if total and total + size > max_bytes:
                pieces.append(Piece(Extent(start, sample.begin), total))
                start, total = sample.begin, 0
            total += size
        return [*pieces, Piece(Extent(start, file.size), total)]

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the samples of the extent from ``cursor`` on; see :class:`Format`."""
        stop = file.size if extent.stop < 0 else extent.stop
        start = cursor.seek or extent.start
        with closing(file.open()) as raw:
            if isinstance(extent, LoneExtent):
                part = TarPart(raw, file, start, stop, self._text)
                yield from self._chunks(part.samples(cursor.skip), part.data)
                failure = part.failure
            else:
                raw.expect(0, file.size)
                index = index_of(raw, file)
                samples = [sample for sample in self._certain(index) if start <= sample.begin < stop][cursor.skip :]
                yield from self._chunks(samples, lambda member: member_data(raw, file, member))
                failure = index.failure if stop >= file.size else None
        if failure is not None:
            raise failure

    def _chunks(self, samples: Iterable[Sample], data_of: Callable[[Member], bytes]) -> Iterator[Chunk]:
        values: list[Value] = []
        first = held = 0
        for sample in samples:
            first = first if values else sample.begin
            values.append(self._text.value(sample, data_of))
            held += self._text.stored(sample)
            if held >= _CHUNK_BYTES or len(values) >= _CHUNK_RECORDS:
                yield Chunk(first, 0, values)
                values, held = [], 0
        if values:
            yield Chunk(first, 0, values)

    def _certain(self, index: Index) -> list[Sample]:
        """Return the samples but for a last one whose member may have been lost with the archive's end."""
        cut = index.failure is not None and index.samples and not self._text.whole(index.samples[-1])
        return index.samples[:-1] if cut else index.samples
