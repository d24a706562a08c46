"""The manifest of shards that are there already, whoever made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamfeed.config import Source
from streamfeed.convert.settings import Settings
from streamfeed.convert.work import Done, Piece, Task, Work
from streamfeed.errors import ConfigError, CorruptShardError
from streamfeed.formats.manifest import MANIFEST, Manifest, ShardEntry
from streamfeed.formats.shape import Shape
from streamfeed.formats.tokens import token_batches
from streamfeed.plan.listed import listed_source
from streamfeed.storage.output import output_at
from streamfeed.storage.store import Store
from streamfeed.storage.sums import sums_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from streamfeed.convert.engines import Engine
    from streamfeed.convert.run import Progress
    from streamfeed.convert.work import Worker
    from streamfeed.storage.output import Output

__all__ = ["index_folder"]

_UNIFORM = "mixed"


@dataclass(frozen=True)
class _IndexTask(Task):
    """Counts a shard, takes its checksums and finds its ways in."""

    piece: int
    name: str
    kind: str

    def run(self, worker: Worker) -> Done:
        """Read the shard; nothing is written."""
        piece = worker.work.pieces[self.piece]
        counted = worker.counted(self.piece)
        tokens = None
        if piece.kind == "tokens":
            batches = token_batches(worker.store.file(piece.url, piece.size, piece.version))
            tokens = sum(one.tokens for one in batches)
        with worker.journal.output.open(self.name) as file:
            sums = sums_of(file, piece.size)
        entry = ShardEntry(self.name, piece.size, sums, counted, tokens, piece.version, self.kind)
        return Done(counted.records, piece.size, ((self.piece, entry),))


def index_folder(
    folder: str,
    engine: Engine,
    *,
    form: str | None = None,
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write the manifest of the shards in ``folder``, read as a source of the format ``form`` would be.

    Raises :class:`ConfigError` where there is one that is none of ours, or that a conversion made and that still fits,
    unless ``overwrite``; and what reading raises for a damaged shard.
    """
    output = output_at(folder, options)
    _refuse(output, overwrite=overwrite)
    source = Source(folder, format=form, storage_options=options)
    listed = listed_source(source, Shape(whole=True), Store(options))
    table = listed.table
    pieces = [
        Piece(table.url(i), int(table.sizes[i]), table.version(i), table.kind(i)) for i in range(len(listed.names))
    ]
    kinds = {piece.kind for piece in pieces}
    common = kinds.pop() if len(kinds) == 1 else _UNIFORM
    tasks = [_IndexTask(i, name, "" if common != _UNIFORM else pieces[i].kind) for i, name in enumerate(listed.names)]
    entries: dict[int, ShardEntry] = {}
    with engine.begin(Work(Settings("parquet"), pieces, folder, options, options)) as session:
        for done in session.run(tasks):
            entries.update(done.shards)
            if progress is not None:
                progress("indexing", done, len(tasks))
    manifest = Manifest(common, tuple(entries[i] for i in range(len(tasks))))
    output.write(MANIFEST, manifest.to_bytes())
    return manifest


def _refuse(output: Output, *, overwrite: bool) -> None:
    data = output.read(MANIFEST)
    if data is None or overwrite:
        return
    shown = f"{output.shown}/{MANIFEST}"
    try:
        manifest = Manifest.from_bytes(data, shown)
    except CorruptShardError as error:
        raise ConfigError(f"{error.shard}: {error.cause}; pass --overwrite to replace it") from error
    names = output.names()
    if manifest.settings and all(names.get(shard.name) == shard.size for shard in manifest.shards):
        raise ConfigError(f"{shown} is that of the conversion that made the shards; pass --overwrite to replace it")
