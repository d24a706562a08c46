"""Shards against their manifest: every byte, every record, every way in."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfeed.convert.forms import Origin
from streamfeed.convert.reading import WholeRecords
from streamfeed.convert.rows import samples_of
from streamfeed.convert.settings import Settings
from streamfeed.convert.work import Done, Piece, Task, Work
from streamfeed.errors import ConfigError, CorruptShardError, ShardError
from streamfeed.formats.manifest import MANIFEST, Manifest, ShardEntry
from streamfeed.formats.members import walk
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.formats.samples import sample_of
from streamfeed.formats.tokens import token_batches
from streamfeed.storage.listing import is_marker
from streamfeed.storage.output import output_at
from streamfeed.storage.sums import sums_of
from streamfeed.storage.walk import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfeed.convert.engines import Engine
    from streamfeed.convert.run import Progress
    from streamfeed.convert.work import Worker
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.output import Output

__all__ = ["Checked", "Problem", "verify_folder"]

_MARKS = 8
"""Ways into a shard that are tried, evenly over it."""

_BYTES = ("jsonl", "tar", "lines", "csv", "tsv")
"""Formats whose ways in are bytes of the file."""


_BY_ARROW = ("parquet", "arrow", "tokens")
"""What pyarrow reads, which may end the process over damage; where its bytes differ, it is not asked."""


class Problem(NamedTuple):
    """What is wrong with the shard ``name``; ``where`` in it, in records where these are known."""

    name: str
    where: str
    cause: str

    def __str__(self) -> str:
        return f"{self.name}{', ' if self.where else ''}{self.where}: {self.cause}"


class Checked(NamedTuple):
    """What was looked at, and what is wrong with it."""

    manifest: Manifest
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _VerifyTask(Task):
    """Checks one shard; what is wrong is told as its ``problems``."""

    piece: int
    entry: ShardEntry

    def run(self, worker: Worker) -> Done:
        """Read the shard, twice at most."""
        return Done(self.entry.counted.records, self.entry.size, problems=tuple(map(tuple, self._problems(worker))))

    def _problems(self, worker: Worker) -> Iterator[Problem]:
        entry, piece = self.entry, worker.work.pieces[self.piece]
        file = worker.store.file(piece.url, piece.size, piece.version)
        place = _Places(entry, piece.kind, file)
        found = False
        if piece.size != entry.size:
            found = True
            how = "it is truncated" if piece.size < entry.size else "something was added to it"
            cause = f"has {piece.size:,} bytes, and the manifest says {entry.size:,}: {how}"
            yield Problem(entry.name, place.lost(piece.size), cause)
        with worker.journal.output.open(entry.name) as raw:
            sums = sums_of(raw, entry.size)
        for start, stop in entry.sums.differing(sums):
            if start < piece.size or not found:
                found = True
                cause = f"bytes {start:,} to {min(stop, entry.size):,} are not those of the manifest"
                yield Problem(entry.name, place.records(start, stop), cause)
        if sums.sha256 != entry.sums.sha256 and not found:
            yield Problem(entry.name, "", "its checksum is not that of the manifest")
        if found and piece.kind in _BY_ARROW:
            return
        try:
            yield from _decoded(worker, piece, file, entry)
        except ShardError as error:
            yield Problem(entry.name, error.where, error.cause)


class _Places:
    """Which records lie at bytes of a shard."""

    def __init__(self, entry: ShardEntry, kind: str, file: ShardFile) -> None:
        self._entry = entry
        self._kind = kind
        self._file = file

    def lost(self, size: int) -> str:
        """Return which records are lost with all bytes from ``size`` on."""
        return self.records(size, self._entry.size) if size < self._entry.size else ""

    def records(self, start: int, stop: int) -> str:
        """Return the records that bytes ``[start, stop)`` are of."""
        total = self._entry.counted.records
        begins = self._begins()
        if begins is None:
            return f"one of records 0 to {total - 1}" if total else ""
        inside = [i for i, (begin, end) in enumerate(begins) if begin[0] < stop and end[0] > start]
        if not inside and begins and stop <= begins[0][0][0]:
            return f"records 0 to {total - 1}"
        if not inside:
            return "behind the last record" if total else ""
        first, last = begins[inside[0]][0][1], begins[inside[-1]][1][1] - 1
        return f"record {first}" if first == last else f"records {first} to {last}"

    def _begins(self) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
        """Return the byte and the record where each stretch of the file begins, and where it ends."""
        counted = self._entry.counted
        if self._kind == "tar":
            found = list(self._samples()) or [(0, 0)]
        elif counted.places:
            found = [(place, mark.record) for place, mark in zip(counted.places, counted.marks, strict=True)]
        elif self._kind.partition(".")[0] in _BYTES and not self._kind.endswith(".gz"):
            found = [(mark.seek, mark.record) for mark in counted.marks]
        else:
            return None
        ends = [*found[1:], (self._entry.size, counted.records)]
        return list(zip(found, ends, strict=True))

    def _samples(self) -> Iterator[tuple[int, int]]:
        known: set[str] = set()
        try:
            with closing(self._file.open()) as raw:
                for member in walk(raw, self._file):
                    split = sample_of(member.name)
                    if split is not None and split[0] not in known:
                        yield member.begin, len(known)
                        known.add(split[0])
        except CorruptShardError:
            return


def _decoded(worker: Worker, piece: Piece, file: ShardFile, entry: ShardEntry) -> Iterator[Problem]:
    """Yield what is wrong with the records, and with the ways to them."""
    if piece.kind == "tokens":
        records = sum(one.documents for one in token_batches(file))
        if records != entry.counted.records:
            yield _miscounted(entry, records)
        return
    reader = WholeRecords(piece.kind, worker.work.settings.text)
    marks = entry.counted.marks[:: max(1, len(entry.counted.marks) // _MARKS)]
    expected = {mark.record: b"" for mark in marks}
    records = 0
    keys: set[str] = set()
    for part in reader.read(file, WHOLE, Cursor()):
        worker.shown.dicts(part.rows, Origin(file.shard, part.seek, part.skip))
        if part.rows.form == "samples":
            yield from _keys(entry, records, [sample.key for sample in samples_of(part.rows)], keys)
        for record in expected.keys() & set(range(records, records + len(part.rows))):
            expected[record] = _said(part.rows.part(record - records, record - records + 1))
        records += len(part.rows)
    if records != entry.counted.records:
        yield _miscounted(entry, records)
    for mark in marks if records == entry.counted.records and records else ():
        with closing(reader.read(file, WHOLE, Cursor(mark.seek, mark.skip))) as parts:  # type: ignore[type-var]
            found = next(iter(parts), None)
        if found is None or _said(found.rows.part(0, 1)) != expected[mark.record]:
            yield Problem(entry.name, f"record {mark.record}", "is not where the manifest says; make it again")


def _miscounted(entry: ShardEntry, records: int) -> Problem:
    return Problem(entry.name, "", f"has {records:,} records, and the manifest says {entry.counted.records:,}")


def _keys(entry: ShardEntry, first: int, found: list[str], known: set[str]) -> Iterator[Problem]:
    """Yield the samples whose keys lead out of a folder, or are the same on a disk without upper case."""
    for number, key in enumerate(found, first):
        if key.startswith("/") or ".." in key.split("/"):
            yield Problem(entry.name, f"record {number}", f"its key {key!r} leads out of the folder it is unpacked in")
        if key.lower() in known:
            yield Problem(entry.name, f"record {number}", f"its key {key!r} is another's, but for upper case")
        known.add(key.lower())


def _said(rows: Any) -> bytes:  # noqa: ANN401
    return str(rows.batch.to_pylist()).encode(errors="surrogatepass")


def verify_folder(
    folder: str, engine: Engine, *, options: Mapping[str, Any] | None = None, progress: Progress | None = None
) -> Checked:
    """Check all shards of ``folder`` against its manifest: sizes, checksums, records, keys, ways in.

    Raises :class:`ConfigError` where there is no manifest, :class:`CorruptShardError` for one that was changed.
    """
    output = output_at(folder, options)
    data = output.read(MANIFEST)
    if data is None:
        raise ConfigError(f"{output.shown} has no {MANIFEST}; make it with streamfeed index")
    manifest = Manifest.from_bytes(data, f"{output.shown}/{MANIFEST}")
    problems, there = _presence(manifest, output)
    pieces = [Piece(output.url(shard.name), size, "", shard.kind or manifest.format) for shard, size in there]
    tasks = [_VerifyTask(number, shard) for number, (shard, _) in enumerate(there)]
    with engine.begin(Work(Settings("parquet"), pieces, folder, options, options)) as session:
        for done in session.run(tasks):
            problems += [Problem(*one) for one in done.problems]
            if progress is not None:
                progress("verifying", done, len(tasks))
    order = {shard.name: number for number, shard in enumerate(manifest.shards)}
    problems.sort(key=lambda problem: order.get(problem.name, len(order)))
    return Checked(manifest, tuple(problems))


def _presence(manifest: Manifest, output: Output) -> tuple[list[Problem], list[tuple[ShardEntry, int]]]:
    """Return what is missing, or there without being in the manifest; and the shards that are there."""
    names = output.names()
    problems: list[Problem] = []
    there: list[tuple[ShardEntry, int]] = []
    first = 0
    for shard in manifest.shards:
        records = shard.counted.records
        if shard.name in names:
            there.append((shard, names[shard.name]))
        else:
            cause = f"is missing: records {first:,} to {first + records - 1:,} of the folder"
            problems.append(Problem(shard.name, "", cause))
        first += records
    known = {shard.name for shard in manifest.shards}
    for name in sorted(names.keys() - known):
        hidden = any(part.startswith(HIDDEN) for part in name.split("/"))
        if not hidden and not is_marker(name.rpartition("/")[2]):
            problems.append(Problem(name, "", "is there, and not in the manifest"))
    return problems, there
