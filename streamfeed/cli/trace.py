"""``streamfeed trace``: which records made up a global batch, made again from the nearest state before it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamfeed.cli.command import asks_for_help, told
from streamfeed.cli.trace_flags import Asked, asked_of
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfeed.cli.records import RecordReader
    from streamfeed.cli.search import Search
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.provenance import Piece, RecordOrigin
    from streamfeed.loader.replay import Replayed
    from streamfeed.train.config import RunConfig
    from streamfeed.train.folders import RunFolder
    from streamfeed.train.steps import Stretch

__all__ = ["Traced", "main", "trace"]

_USAGE = """usage: streamfeed trace RUN_FOLDER (--step N | --steps A:B) [--rank R [--ranks N]] [--find TEXT] [--records]
                        [--json] [--data.* FLAGS]

Shows which records the rows of a step, or of steps A to B, were made of, and their text: made again from the nearest
checkpoint before, or from the beginning of the stream. Nothing of it was logged in training.
--rank R    only the rows of that rank; --ranks says how many there were, where no later checkpoint does
--find TEXT only pieces with this text
--records   also the records whole, read again from their shards
--json      for a program
What a run does not save (storage options, signed URLs) is given again, by the flags of training.
"""


@dataclass(frozen=True)
class Traced:
    """The rows of one step, as JSON; ``since`` says which state they were made from."""

    step: int
    rows: list[dict[str, Any]]
    first_row: int
    since: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"step": self.step, "first_row": self.first_row, "since": self.since, "rows": self.rows}


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 for an error of the data (or nothing found), 2 for one of the settings."""
    return 0 if asks_for_help(argv, _USAGE) else told(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    asked, words = asked_of(argv)
    found = trace(asked, words)
    return 0 if (_as_json if asked.as_json else _shown)(found, asked) else 1


def trace(asked: Asked, words: Sequence[str] = ()) -> Iterator[Traced]:
    """Yield the steps asked for, in order; ``words`` are flags above the run's own settings.

    Of a search only the steps with a hit. Raises :class:`~streamfeed.errors.StreamfeedError` as training does, where
    the run has no such step or rank, and where its stream cannot be made again.
    """
    from streamfeed.train.flags import Arguments, parse
    from streamfeed.train.folders import RunFolder
    from streamfeed.train.steps import steps_of

    run = RunFolder(asked.run)
    if not run.config.is_file():
        raise ConfigError(f"{asked.run} is no run folder: it has no {run.config.name}")
    config = parse(Arguments.split(words).over(run.config))
    stretches = steps_of(run, config)
    return _traced(asked, config, run, stretches)


def _traced(asked: Asked, config: RunConfig, run: RunFolder, stretches: Sequence[Stretch]) -> Iterator[Traced]:
    from tokenizers import Tokenizer

    from streamfeed.cli.search import Search
    from streamfeed.loader.loader import StreamLoader

    end = stretches[-1].last if stretches else 0
    if end is not None and asked.last > end:
        raise ConfigError(f"{run.path} ended with step {end}; there is no step {asked.last}")
    asked = replace(asked, ranks=asked.ranks or _ranks(asked, stretches))
    with StreamLoader(config.stream(), 1, rank=0, world_size=1) as loader:
        tokenizer = Tokenizer.from_str(loader.tokenizer.json)

        def decode(ids: Sequence[int]) -> str:
            text: str = tokenizer.decode(ids, skip_special_tokens=False)
            return text

        search = None if asked.find is None else Search(asked.find, decode)
        for stretch in stretches:
            first = max(asked.first, stretch.step + 1)
            last = asked.last if stretch.last is None else min(asked.last, stretch.last)
            if first <= last:
                yield from _Tracing(asked, loader, stretch, decode, search).steps(first, last)


def _ranks(asked: Asked, stretches: Sequence[Stretch]) -> int | None:
    """Return the number of ranks that a rank is asked of; None where none is."""
    if asked.rank is None:
        return None
    known = {one.ranks for one in stretches if one.step < asked.last and (one.last is None or one.last >= asked.first)}
    if len(known) != 1 or None in known:
        raise ConfigError(
            f"the checkpoints do not say on how many ranks steps {asked.first} to {asked.last} were trained; give "
            "--ranks, or ask for fewer steps"
        )
    (ranks,) = known
    assert ranks is not None
    if asked.rank >= ranks:
        raise ConfigError(f"there is no rank {asked.rank}: steps {asked.first} to {asked.last} had {ranks} rank(s)")
    return ranks


class _Tracing:
    """The steps of one stretch, made again from its state."""

    def __init__(
        self,
        asked: Asked,
        loader: StreamLoader,
        stretch: Stretch,
        decode: Callable[[Sequence[int]], str],
        search: Search | None,
    ) -> None:
        self._asked = asked
        self._decode = decode
        self._search = search
        self._loader = loader
        self._stretch = stretch
        self._ranks = asked.ranks or stretch.ranks

    def steps(self, first: int, last: int) -> Iterator[Traced]:
        """Yield steps ``first`` to ``last``."""
        from streamfeed.cli.records import RecordReader
        from streamfeed.dataset.state import StreamState
        from streamfeed.loader.replay import replay

        stretch, loader = self._stretch, self._loader
        if stretch.state is not None:
            loader.load_state_dict(stretch.state)  # which checks it, and takes its number of lanes
            state = StreamState.from_json(stretch.state)
        else:
            loader.reset()
            state = StreamState(loader.plan.fingerprint)
        reader = RecordReader(loader.plan)
        since = "the beginning" if stretch.checkpoint is None else str(stretch.checkpoint.path)
        rows = replay(loader, state, stretch.rows(first).start, stretch.rows(last).stop)
        held: list[dict[str, Any]] = []
        step = first
        for row in rows:
            while row.number >= stretch.rows(step).stop:
                yield from self._step(step, held, since)
                held, step = [], step + 1
            if (said := self._row(row, reader)) is not None:
                held.append(said)
        yield from self._step(step, held, since)
        if step < last:
            raise ConfigError(f"the data end in step {step}; there is no step {last}")

    def _step(self, step: int, rows: list[dict[str, Any]], since: str) -> Iterator[Traced]:
        if rows or self._search is None:
            yield Traced(step, rows, self._stretch.rows(step).start, since)

    def _row(self, row: Replayed, reader: RecordReader) -> dict[str, Any] | None:
        rank = None if self._ranks is None else row.number % self._ranks
        if self._asked.rank not in (None, rank):
            return None
        ids = row.ids.tolist()
        pieces = [
            self._piece(piece, ids[piece.begin : piece.end], reader)
            for piece in row.pieces
            if self._search is None or self._search.has(piece, ids[piece.begin : piece.end])
        ]
        if self._search is not None and not pieces:
            return None
        return {"row": row.number, "lane": row.lane, "rank": rank, "tokens": len(ids), "pieces": pieces}

    def _piece(self, piece: Piece, ids: list[int], reader: RecordReader) -> dict[str, Any]:
        return {
            "columns": [piece.begin, piece.end],
            "tokens": [piece.token, piece.token + len(ids)],
            "sample": piece.sample,
            "text": self._decode(ids),
            "records": [self._record(record, reader) for record in piece.records],
        }

    def _record(self, record: RecordOrigin, reader: RecordReader) -> dict[str, Any]:
        said: dict[str, Any] = {
            "source": record.source,
            "shard": record.shard,
            "unit": None if record.stop < 0 else [record.start, record.stop],
            "record": record.record,
            "byte": reader.byte(record),
            "epoch": record.epoch,
        }
        return said | {"value": reader.value(record)} if self._asked.records else said


def _as_json(found: Iterator[Traced], asked: Asked) -> bool:
    steps = [traced.to_json() for traced in found]
    json.dump({"run": str(asked.run), "steps": steps}, sys.stdout, ensure_ascii=False, indent=1)
    sys.stdout.write("\n")
    return bool(steps)


def _shown(found: Iterator[Traced], asked: Asked) -> bool:
    from streamfeed.cli.shown_trace import show

    some = False
    for traced in found:
        show(traced, asked.find)
        some = True
    if not some:
        sys.stderr.write(f"no piece of steps {asked.first} to {asked.last} has this text\n")
    return some
