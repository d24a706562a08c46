"""What there is to do, and who does it: units of work whose results are functions of the source and the settings."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfeed.config import RetryPolicy
from streamfeed.convert.counts import count
from streamfeed.convert.forms import Origin, Shown
from streamfeed.convert.journal import Journal
from streamfeed.convert.reading import WholeRecords
from streamfeed.convert.tables import GROUP_BYTES, ParquetShardWriter
from streamfeed.convert.writers import JsonLinesWriter, TarShardWriter
from streamfeed.errors import ReadError
from streamfeed.formats.manifest import ShardEntry
from streamfeed.formats.protocol import WHOLE, Cursor, Extent
from streamfeed.storage.output import output_at
from streamfeed.storage.store import Store
from streamfeed.storage.sums import sums_of
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfeed.convert.cut import Shard
    from streamfeed.convert.rows import Rows
    from streamfeed.convert.settings import Settings
    from streamfeed.convert.writers import Writer
    from streamfeed.formats.marks import Counted

__all__ = ["CountTask", "Done", "MakeTask", "Piece", "Task", "Work", "Worker"]


class Piece(NamedTuple):
    """A part of the source that is counted by itself: an extent of a shard."""

    url: str
    size: int
    version: str
    kind: str
    extent: Extent = WHOLE


@dataclass(frozen=True)
class Work:
    """A conversion as every process needs it; options of stores may hold secrets."""

    settings: Settings
    pieces: Sequence[Piece]
    dest: str
    dest_options: Mapping[str, Any] | None = field(default=None, repr=False)
    source_options: Mapping[str, Any] | None = field(default=None, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class Done(NamedTuple):
    """What a task did: ``records`` and bytes, of the source's and as stored; ``shards`` were finished by it or before.

    ``kept`` of the shards were there already. ``problems``: what a check found, as it tells them.
    """

    records: int = 0
    nbytes: int = 0
    shards: tuple[tuple[int, ShardEntry], ...] = ()
    kept: int = 0
    problems: tuple[tuple[str, ...], ...] = ()


class Task:
    """A unit of work: small to send, done in any process, its results on the output before it returns."""

    def run(self, worker: Worker) -> Done:
        """Do it."""
        raise NotImplementedError


@dataclass(frozen=True)
class CountTask(Task):
    """Counts the records of a piece, unless somebody has."""

    piece: int

    def run(self, worker: Worker) -> Done:
        """Count, and note it."""
        counted = worker.journal.count(self.piece)
        if counted is None:
            counted = worker.counted(self.piece)
            worker.journal.note_count(self.piece, counted)
        return Done(counted.records, counted.nbytes)


@dataclass(frozen=True)
class MakeTask(Task):
    """Makes shards that follow each other, in one reading; those that are there already are kept."""

    shards: tuple[Shard, ...]

    def run(self, worker: Worker) -> Done:
        """Make what is missing."""
        found: dict[int, ShardEntry] = {}
        for shard in self.shards:
            entry = worker.journal.check(shard.number)
            if entry is not None:
                found[shard.number] = entry
        kept = len(found)
        begin = next((i for i, shard in enumerate(self.shards) if shard.number not in found), None)
        if begin is not None:
            stream = worker.records(self.shards[begin:])
            for shard in self.shards[begin:]:
                rows = stream.take(shard.records)
                if shard.number in found:
                    for _ in rows:  # passed over, on the way to the next
                        pass
                else:
                    found[shard.number] = worker.write(shard, rows)
        records = sum(shard.records for shard in self.shards)
        nbytes = sum(shard.nbytes for shard in self.shards)
        return Done(records, nbytes, tuple(sorted(found.items())), kept)


class Stream:
    """Records in order, taken by number; each run of rows with its origin."""

    def __init__(self, rows: Iterator[tuple[Rows, Origin]]) -> None:
        self._rows = rows
        self._left: tuple[Rows, Origin] | None = None

    def take(self, records: int) -> Iterator[tuple[Rows, Origin]]:
        """Yield the next ``records`` records; raises what reading does, also where there are fewer than counted."""
        while records:
            rows, origin = self._left or next(self._rows)
            taken = min(records, len(rows))
            self._left = (rows.part(taken, len(rows)), origin.ahead(taken)) if taken < len(rows) else None
            yield rows.part(0, taken), origin
            records -= taken


class Worker:
    """Does tasks of ``work`` in one process: its readers, writers and stores."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.journal = Journal(output_at(work.dest, work.dest_options))
        self.shown = Shown(work.settings.text)
        self._readers: dict[str, WholeRecords] = {}

    def do(self, task: Task) -> Done:
        """Do a task; what it raises is a :class:`~streamfeed.errors.StreamfeedError`."""
        return task.run(self)

    @cached_property
    def store(self) -> Store:
        """The source's store."""
        return Store(self.work.source_options, policy=self.work.retry)

    @property
    def shuffled(self) -> Origin:
        """The origin of records whose place in the source is no longer known."""
        return Origin(f"{self.journal.output.shown} (a shuffled record)", 0, 0)

    def counted(self, number: int) -> Counted:
        """Count the records of a piece."""
        piece = self.work.pieces[number]
        return count(self.store.file(piece.url, piece.size, piece.version), piece.kind, piece.extent)

    def piece(self, number: int, cursor: Cursor) -> Iterator[tuple[Rows, Origin]]:
        """Yield the records of a piece from ``cursor`` on."""
        piece = self.work.pieces[number]
        if piece.kind not in self._readers:
            self._readers[piece.kind] = WholeRecords(piece.kind, self.work.settings.text)
        file = self.store.file(piece.url, piece.size, piece.version)
        with closing(self._readers[piece.kind].read(file, piece.extent, cursor)) as parts:  # type: ignore[type-var]
            for part in parts:
                yield part.rows, Origin(redact(piece.url), part.seek, part.skip)

    def records(self, shards: Sequence[Shard]) -> Stream:
        """Return the records of shards that follow each other, from the first one's on."""
        return Stream(self._records(shards))

    def _records(self, shards: Sequence[Shard]) -> Iterator[tuple[Rows, Origin]]:
        stretches = [stretch for shard in shards for stretch in shard.stretches]
        while stretches:
            first = stretches[0]
            same = [one for one in stretches if one.piece == first.piece]
            left = sum(stretch.records for stretch in same)
            stretches = stretches[len(same) :]
            with closing(self.piece(first.piece, first.cursor)) as found:  # type: ignore[type-var]
                for rows, origin in found:
                    yield rows.part(0, min(left, len(rows))), origin
                    left -= min(left, len(rows))
                    if not left:
                        break
            if left:
                cause = f"gave {left:,} records fewer than were counted in it"
                raise ReadError(
                    redact(self.work.pieces[first.piece].url), "", cause, "it changed, or is not read evenly"
                )

    def write(self, shard: Shard, rows: Iterator[tuple[Rows, Origin]]) -> ShardEntry:
        """Write a shard, place it, and note it."""
        output, settings = self.journal.output, self.work.settings
        name = settings.name(shard.number)
        with output.scratch() as scratch:
            path = scratch / name
            writer = self._writer(path, shard)
            try:
                for some, origin in rows:
                    writer.add(some, origin)
                written = writer.close()
            finally:
                writer.abandon()
            size = path.stat().st_size
            with path.open("rb", buffering=0) as file:
                entry = ShardEntry(name, size, sums_of(file, size), written.counted, written.tokens)
            assert entry.counted.records == shard.records, "a shard has other records than were cut for it"
            placed = output.place(path, name)
        self.journal.note(shard.number, entry, placed)
        return entry

    def _writer(self, path: Path, shard: Shard) -> Writer:
        settings = self.work.settings
        if settings.to == "parquet":
            average = max(1, shard.nbytes // max(1, shard.records))
            return ParquetShardWriter(path, self.shown, max(1, min(GROUP_BYTES // average, 1 << 20)))
        if settings.to == "tar":
            return TarShardWriter(path, self.shown, settings.text, shard.first)
        if settings.to == "tokens":
            from streamfeed.convert.tokens import TokenWriter

            return TokenWriter(path, self.shown, settings)
        return JsonLinesWriter(path, self.shown)
