"""A conversion from its beginning, or from where it was left, to its manifest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfeed.convert.cut import Shard, chains, cut
from streamfeed.convert.engines import Engine, LocalEngine, Session
from streamfeed.convert.journal import Journal
from streamfeed.convert.shuffle import BUCKET_BYTES, Buckets, ShuffledTask, SpillTask, shuffled_shards, spans_of
from streamfeed.convert.work import CountTask, Done, MakeTask, Piece, Task, Work
from streamfeed.errors import ConfigError, SourceError, WorkerError
from streamfeed.formats.detect import make_format
from streamfeed.formats.manifest import Manifest, ShardEntry
from streamfeed.formats.protocol import WHOLE
from streamfeed.formats.shape import Shape
from streamfeed.plan.fingerprint import source_print
from streamfeed.plan.listed import Listed, listed_source
from streamfeed.storage.hub.address import PREFIX
from streamfeed.storage.output import output_at
from streamfeed.storage.store import Store
from streamfeed.storage.urls import is_remote, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfeed.config import Source
    from streamfeed.convert.settings import Settings
    from streamfeed.formats.marks import Counted

__all__ = ["Conversion", "Progress"]

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 << 20
"""Plain lines are counted this much at a time, by several processes."""

_Begun = tuple[Work, dict[str, Any], Manifest | None]
"""What is to be done, the conversion in words, and its manifest if all was done before."""

Progress = Callable[[str, Done, int], None]
"""``(stage, what a task did, tasks of the stage)``, after every task."""


def _silent(stage: str, done: Done, tasks: int) -> None:
    """Show nothing."""


@dataclass
class Conversion:
    """Converts ``source`` into shards in the folder ``dest``.

    Done with any engine, in parts or at once, interrupted or not, the folder's bytes are the same. Raises
    :class:`ConfigError` for a folder that holds something else, unless ``overwrite``, and what reading and writing do.
    """

    source: Source
    dest: str
    settings: Settings
    engine: Engine = field(default_factory=LocalEngine)
    dest_options: Mapping[str, Any] | None = None
    overwrite: bool = False
    progress: Progress = _silent

    def run(self) -> Manifest:
        """Do all of it; return the manifest.

        The source is listed again at the end, to refuse one that has changed; but for the Hub, where what was listed is
        of a commit, and a later one is none of its business.
        """
        begun = self._begun()
        is_pinned = all(uri.startswith(PREFIX) for uri in self.source.uris)
        return self._go(begun, (0, 1)) or self._finish(begun if is_pinned else self._begun())

    def part(self, index: int, count: int) -> None:
        """Do part ``index`` (from 0) of ``count``; :meth:`finish` is for behind the last.

        Parts may run at once, on machines that share ``dest``. Counting is shared: a part begins with its own pieces
        and goes on with those that no other has counted meanwhile.
        """
        if not 0 <= index < count:
            raise ConfigError(f"parts are numbered 1 to {count}, got {index + 1}")
        self._go(self._begun(), (index, count))

    def finish(self) -> Manifest:
        """Write the manifest where all shards are made, and remove the journal.

        Raises :class:`WorkerError` where some are missing, naming the first.
        """
        return self._finish(self._begun())

    def _finish(self, begun: _Begun) -> Manifest:
        work, said, complete = begun
        if complete is not None:
            return complete
        journal = Journal(output_at(self.dest, self.dest_options))
        counts = [journal.count(number) for number in range(len(work.pieces))]
        if any(one is None for one in counts):
            raise WorkerError(f"{journal.output.shown}: not all of the source was counted; run the parts again")
        shards = self._cut([one for one in counts if one is not None])
        sizes = journal.output.names()
        entries: list[ShardEntry] = []
        for shard in shards:
            noted = journal.read(shard.number)
            if noted is None or sizes.get(noted.entry.name) != noted.entry.size:
                name = self.settings.name(shard.number)
                raise WorkerError(f"{journal.output.shown}/{name} is not finished; run the parts again")
            entries.append(noted.entry)
        manifest = Manifest(self.settings.to, tuple(entries), said["source"], said["settings"])
        journal.finish(manifest)
        if not entries:
            logger.warning("%s: the source has no record, so that there is no shard", journal.output.shown)
        return manifest

    def _go(self, begun: _Begun, part: tuple[int, int]) -> Manifest | None:
        """Count, and make the shards of a part; return the manifest where everything was done before."""
        work, _, complete = begun
        if complete is not None:
            logger.info("%s is complete already", redact(self.dest))
            return complete
        with self.engine.begin(work) as session:
            counts = self._counts(session, len(work.pieces), part)
            shards = self._cut(counts)
            if self.settings.shuffle is None:
                tasks: list[Task] = [MakeTask(tuple(chain)) for chain in chains(shards, counts)]
            else:
                tasks = self._shuffled(session, shards, counts, part)
            self._run("converting", session, tasks[part[0] :: part[1]])
        return None

    def _begun(self) -> _Begun:
        """List the source, and look at what the folder holds."""
        store = Store(self.source.storage_options, policy=self.source.retry)
        listed = listed_source(self.source, Shape(whole=True), store)
        self._refuse_inside(listed)
        pieces = _pieces(listed, store)
        work = Work(self.settings, pieces, self.dest, self.dest_options, self.source.storage_options, self.source.retry)
        sizes = listed.table.sizes.tolist()
        print_of = source_print(self.source, listed.names, sizes, listed.kinds)
        said = {
            "settings": self.settings.said(),
            "source": {
                "uris": [redact(uri) for uri in self.source.uris],
                **{name: print_of[name] for name in ("shards", "bytes", "hash")},
            },
            "versions": listed.table.versions_digest(),
        }
        journal = Journal(output_at(self.dest, self.dest_options))
        return work, said, journal.begin(said, overwrite=self.overwrite)

    def _refuse_inside(self, listed: Listed) -> None:
        """Refuse to write where the source lies: the next listing would find the shards."""
        dest = self.dest.rstrip("/") if is_remote(self.dest) else os.path.abspath(Path(self.dest).expanduser())  # noqa: PTH100
        for shard in range(len(listed.table)):
            url = listed.table.url(shard)
            if url.startswith(dest + "/"):
                raise ConfigError(f"{redact(self.dest)} holds {redact(url)} of the source; convert to another folder")

    def _counts(self, session: Session, pieces: int, part: tuple[int, int]) -> list[Counted]:
        journal = Journal(output_at(self.dest, self.dest_options))
        known = journal.counted()
        numbers = [number for number in range(pieces) if number not in known]
        own = [number for number in numbers if number % part[1] == part[0]]
        others = [number for number in numbers if number % part[1] != part[0]]
        self._run("counting", session, [CountTask(number) for number in (*own, *others)])
        found = [journal.count(number) for number in range(pieces)]
        return [one for one in found if one is not None]

    def _cut(self, counts: Sequence[Counted]) -> list[Shard]:
        settings = self.settings
        by = cut if settings.shuffle is None else shuffled_shards
        return by(counts, settings.max_records, settings.limit_bytes)

    def _shuffled(
        self, session: Session, shards: Sequence[Shard], counts: Sequence[Counted], part: tuple[int, int]
    ) -> list[Task]:
        """Do the first pass; return the tasks of the second."""
        assert self.settings.shuffle is not None
        records, nbytes = sum(one.records for one in counts), sum(one.nbytes for one in counts)
        buckets = Buckets(self.settings.shuffle, records, max(1, nbytes // BUCKET_BYTES))
        first = 0
        spills: list[Task] = []
        for number, one in enumerate(counts):
            spills.append(SpillTask(number, first, buckets))
            first += one.records
        self._run("shuffling", session, [*spills[part[0] :], *spills[: part[0]]])
        spans = spans_of(shards, buckets.sizes())
        return [ShuffledTask(shard, buckets, len(counts), span) for shard, span in zip(shards, spans, strict=True)]

    def _run(self, stage: str, session: Session, tasks: Sequence[Task]) -> None:
        for done in session.run(tasks):
            self.progress(stage, done, len(tasks))


def _pieces(listed: Listed, store: Store) -> list[Piece]:
    table = listed.table
    pieces: list[Piece] = []
    for shard in range(len(table)):
        url, size, version, kind = table.url(shard), int(table.sizes[shard]), table.version(shard), table.kind(shard)
        if kind == "tokens":
            raise SourceError(f"{redact(url)}: tokens are read by streams, and converted into nothing else")
        extents = [WHOLE]
        if kind in {"jsonl", "lines"} and size > PIECE_BYTES:
            split = make_format(kind, Shape()).split(store.file(url, size, version), PIECE_BYTES)
            extents = [piece.extent for piece in split or ()]
        pieces += [Piece(url, size, version, kind, extent) for extent in extents]
    return pieces
