"""WebDataset tars under gzip or zstd: read once from front to back, a sample at a time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError
from streamfeed.formats.compressed import Compression, unpacked
from streamfeed.formats.members import Member, padded, walk
from streamfeed.formats.protocol import Chunk, Cursor, Extent, Piece, Value
from streamfeed.formats.sample_records import reader_of
from streamfeed.formats.samples import MEMBER_LIMIT, Sample, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.formats.pieces import Step
    from streamfeed.formats.samples import SampleReader
    from streamfeed.formats.shape import Shape
    from streamfeed.storage.files import ShardFile

__all__ = ["TarStream"]

_CHUNK_BYTES = 1 << 20
_CHUNK_RECORDS = 4096
_UNPACKED = " of the unpacked archive"


class TarStream:
    """Reads one text of every sample of a compressed tar, as :class:`~streamfeed.formats.tar.Tar` does of a plain one.

    There is no index to look into, so the members of one key must be neighbours: one that comes back later is an error.
    The extent is always the whole shard; a cursor's ``seek`` is 0, ``skip`` the samples from the shard's start.
    """

    name = "tar"

    def __init__(self, text: str | Shape | SampleReader, compression: Compression) -> None:
        self._text = reader_of(text)
        self._compression = compression

    def split(self, file: ShardFile, max_bytes: int) -> list[Piece] | None:  # noqa: ARG002
        """Return ``None``: there is no way in but the shard's start."""
        return None

    def read(self, file: ShardFile, extent: Extent, cursor: Cursor) -> Iterator[Chunk]:
        """Yield the samples from ``cursor`` on; see :class:`Format`."""
        if extent.start or extent.stop >= 0:
            raise ValueError(f"a compressed shard is read whole, not as {extent}")
        with closing(file.open()) as raw:
            raw.expect(0, file.size)
            archive = _Archive(unpacked(raw, file, self._compression), file)
            samples = _Samples(archive, file, self._text)
            values: list[Value] = []
            first, held = cursor.skip, 0
            for number, sample in enumerate(samples.whole()):
                if number < cursor.skip:
                    continue
                values.append(self._text.value(sample, lambda member: samples.texts[member.data]))
                held += self._text.stored(sample)
                if held >= _CHUNK_BYTES or len(values) >= _CHUNK_RECORDS:
                    yield Chunk(0, first, values)
                    first, values, held = number + 1, [], 0
            if values:
                yield Chunk(0, first, values)
            if samples.failure is not None:
                raise samples.failure


class _Samples:
    """The samples of an archive in order, each with the data of the members that may hold its text."""

    def __init__(self, archive: _Archive, file: ShardFile, text: SampleReader) -> None:
        self._archive = archive
        self._file = file
        self._text = text
        self._seen: set[str] = set()
        self.texts: dict[int, bytes] = {}
        """by the offset of the member's data, of the sample that was yielded last"""
        self.failure: CorruptShardError | None = None
        """what ended the archive early"""

    def whole(self) -> Iterator[Sample]:
        """Yield the samples that are whole; one that was cut off may yet be whole, where its text is there."""
        sample: Sample | None = None
        try:
            for member in walk(self._archive, self._file, sized=False):
                split = sample_of(member.name)
                if split is None:
                    continue
                if sample is None or split[0] != sample.key:
                    done, sample = sample, None
                    if done is not None:
                        yield done
                    sample = self._new(split[0], member)
                if split[1] not in sample.members:  # a second one makes the sample bad, whatever is in it
                    self._keep(member, split[1])
                sample.add(member, split[1])
            self._archive.drain()
        except CorruptShardError as error:
            self.failure = self._placed(error)
        if sample is not None and (self.failure is None or self._text.whole(sample)):
            yield sample

    def _new(self, key: str, member: Member) -> Sample:
        self.texts = {}
        if key in self._seen:
            cause = f"member {member.name!r} is not beside the others of its key, which came before other samples"
            advice = "order the archive by name, or decompress it: a plain tar may have any order"
            raise CorruptShardError(self._file.shard, f"byte {member.begin}", cause, advice)
        self._seen.add(key)
        return Sample(key, member.begin)

    def _keep(self, member: Member, extension: str) -> None:
        """Read the data of a member that may hold the text; a cut in it is an error before the sample is taken."""
        if extension not in self._text.extensions or member.size > MEMBER_LIMIT:
            return
        size = padded(member.size)
        data = self._archive.read_at(member.data, size)
        if len(data) < size:
            raise self._archive.cut()
        self.texts[member.data] = data[: member.size]

    def _placed(self, error: CorruptShardError) -> CorruptShardError:
        """Return ``error`` with the place that it means: what the compression finds counts compressed bytes."""
        if error is self._archive.failure:
            return error
        return CorruptShardError(error.shard, error.where + _UNPACKED, error.cause, error.advice)


class _Archive:
    """Decompressed bytes by their offset, which may only grow."""

    def __init__(self, steps: Iterator[Step], file: ShardFile) -> None:
        self._steps = steps
        self._file = file
        self._data = b""
        self._begin = 0  # the offset of _data[0]
        self.failure: CorruptShardError | None = None
        """what the compression found"""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer at the end; raises where the end is before ``offset``."""
        while self._begin + len(self._data) <= offset:
            if not self._more():
                if self._begin < offset:
                    raise self.cut()
                return b""
        at = offset - self._begin
        found = self._data[at : at + size]
        if len(found) == size:
            return found
        pieces = [found]
        missing = size - len(found)
        while missing and self._more():
            pieces.append(self._data[:missing])
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def drain(self) -> None:
        """Pass over the rest, so that damage of the compressed data behind the archive's end is seen."""
        while self._more():
            pass

    def cut(self) -> CorruptShardError:
        """Return the error for an archive that ends inside a member."""
        cause = "the archive is cut off inside the member before this byte"
        return CorruptShardError(
            self._file.shard, f"byte {self._begin + len(self._data)}", cause, "copy the shard again"
        )

    def _more(self) -> bool:
        """Take the next step in place of the one that is held; False at the end."""
        self._begin += len(self._data)
        self._data = b""
        try:
            step = next(self._steps, None)
        except CorruptShardError as error:
            self.failure = error
            raise
        if step is not None:
            self._data = step.data
        return step is not None
