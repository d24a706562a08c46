"""What provenance costs: the time of a loader with it beside one without, over the same batches, in interleaved pairs.

    python scripts/bench_provenance.py                    # the corpus of scripts/bench.py
    python scripts/bench_provenance.py --packing best_fit --sources 3

Both loaders are open at once and hand out the same rows in turns of ``--batches`` batches, each first in turn.
All is done in this process, and its CPU time counts, which other load on the machine changes little: the ratio of the
sums is printed, and the quartiles of the pairs' ratios. What workers send is packed and unpacked as between processes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfeed import StreamLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "streamfeed" / "bench")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--packing", default="concat")
    parser.add_argument("--sources", type=int, default=1, help="the corpus so many times, as a mixture")
    arguments = parser.parse_args()
    if not (arguments.folder / "done").exists():
        sys.exit(f"there is no corpus in {arguments.folder}: run scripts/bench.py first, which makes it")
    pack_messages()
    with loader_for(arguments, provenance=False) as plain, loader_for(arguments, provenance=True) as traced:
        feeds = iter(plain), iter(traced)
        for feed in feeds:
            spent(feed, 3 * arguments.batches)  # the first windows
        pairs = [pair(feeds, arguments.batches, turn) for turn in range(arguments.pairs)]
    without, with_it = (sum(column) for column in zip(*pairs, strict=True))
    quartiles = statistics.quantiles(b / a for a, b in pairs)
    tokens = arguments.pairs * arguments.batches * arguments.batch_size * arguments.seq_len
    sys.stdout.write(
        f"{arguments.packing}, {arguments.sources} source(s): "
        f"{tokens / without / 1e6:.2f} M tokens/s without, {tokens / with_it / 1e6:.2f} with; "
        f"{with_it / without - 1:+.1%} time (pairs: {', '.join(f'{one - 1:+.1%}' for one in quartiles)})\n"
    )


def pack_messages() -> None:
    """Let all that is told of a message's rows be packed and unpacked once, as between a worker and the trainer."""
    from streamfeed.dataset.origins import Ledgers, RowOrigins, Told

    read = Ledgers.read

    def packed(self: Ledgers, told: Told) -> RowOrigins:
        return read(self, Told.split(told.behind(b""))[1])

    Ledgers.read = packed  # type: ignore[method-assign]


def pair(feeds: Sequence[Iterator[object]], batches: int, turn: int) -> tuple[float, float]:
    """Return the seconds without and with provenance; which comes first alternates."""
    if turn % 2:
        second = spent(feeds[1], batches)
        return spent(feeds[0], batches), second
    return spent(feeds[0], batches), spent(feeds[1], batches)


def spent(feed: Iterator[object], count: int) -> float:
    began = time.process_time()
    for _ in islice(feed, count):
        pass
    return time.process_time() - began


def loader_for(arguments: argparse.Namespace, *, provenance: bool) -> StreamLoader:
    from streamfeed import Source, StreamConfig, StreamLoader

    config = StreamConfig(
        [Source(str(arguments.folder / "data"))] * arguments.sources,
        tokenizer=str(arguments.folder / "tokenizer"),
        seq_len=arguments.seq_len,
        packing=arguments.packing,
    )
    return StreamLoader(config, arguments.batch_size, provenance=provenance)


if __name__ == "__main__":
    main()
