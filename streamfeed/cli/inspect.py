"""``streamfeed inspect``: the dry run. Resolves and plans a stream, and shows what its first rows decode to."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from streamfeed.cli.command import asks_for_help, told
from streamfeed.cli.own_flags import take_own, whole_number
from streamfeed.objectives import Classification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.cli.spans import Row
    from streamfeed.config import StreamConfig
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.train.config import RunConfig

__all__ = ["Inspected", "inspect", "main"]

_USAGE = """usage: streamfeed inspect [--rows N] [--json] [--config FILE] [--data.* FLAGS]

Shows what training would be given, without a model: the shards, lanes and tokenizer, and the first N rows (default 4)
as text, document by document, with the tokens that have a loss marked. --json gives the same to a program.
The settings are those of training: streamfeed train --help
"""


@dataclass(frozen=True)
class Inspected:
    """A stream as planned, its first rows, and what became of the data behind them."""

    stream: dict[str, Any]
    rows: Sequence[Row]
    counts: dict[str, Any]
    names: Sequence[str]
    """of the classes; empty where there are none"""


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 for an error of the data, 2 for one of the settings."""
    return 0 if asks_for_help(argv, _USAGE) else told(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    from streamfeed.train.flags import Arguments, parse

    own, switches, words = take_own(argv, {"--rows": "4"}, ["--json"])
    found = inspect(parse(Arguments.split(words)), whole_number("--rows", own["--rows"], 1))
    if "--json" in switches:
        json.dump(asdict(found), sys.stdout, ensure_ascii=False, indent=1)
        sys.stdout.write("\n")
    else:
        from streamfeed.cli.shown import show

        show(found)
    return 0


def inspect(config: RunConfig, rows: int) -> Inspected:
    """Return the first ``rows`` rows that training with ``config`` on one rank would be given, fewer if there are none.

    Raises :class:`~streamfeed.errors.StreamfeedError` as training does.
    """
    from streamfeed.cli.spans import Decoder
    from streamfeed.loader.loader import StreamLoader

    stream = config.stream()
    names: Sequence[str] = ()
    if isinstance(stream.objective, Classification):
        names = stream.objective.names or [str(number) for number in range(stream.objective.count)]
    with StreamLoader(
        stream,
        config.loader.batch_size,
        rank=0,
        world_size=1,
        columns=("document_ids",),
        pad_to_multiple_of=config.loader.pad_to_multiple_of,
    ) as loader:
        decoder = Decoder(loader.tokenizer, loader.plan.lanes)
        found: list[Row] = []
        for batch in loader:
            found += decoder.rows({name: column.numpy() for name, column in batch.items()}, len(found))
            if len(found) >= rows:
                break
        report = loader.report()
        counts = {
            "batches": report.batches,
            "tokens": report.tokens,
            "padding": report.padding,
            "utilisation": round(report.utilisation, 4),
            "empty_rows": report.empty_rows,
            **report.tally.counts(),
        }
        return Inspected(_planned(stream, loader), found[:rows], counts, names)


def _planned(stream: StreamConfig, loader: StreamLoader) -> dict[str, Any]:
    from streamfeed.storage.urls import redact

    tokenizer = loader.tokenizer
    return {
        "sources": [
            {
                "uri": [redact(uri) for uri in source.uris],
                "shards": len(planned.shards),
                "bytes": int(planned.shards.sizes.sum()),
                "formats": list(planned.shards.kind_names),
                "units": len(planned.units),
            }
            for source, planned in zip(stream.sources, loader.plan.sources, strict=True)
        ],
        "lanes": loader.plan.lanes,
        "objective": repr(stream.objective),
        "packing": stream.packing,
        "seq_len": stream.seq_len,
        "tokenizer": {
            "name": tokenizer.name,
            "vocabulary": tokenizer.vocab_size,
            "bos": tokenizer.bos_id,
            "eos": tokenizer.eos_id,
            "pad": tokenizer.pad_id,
            "mask": tokenizer.mask_id,
        },
        "engine": loader.verdict.engine,
        "why": loader.verdict.reason,
    }
