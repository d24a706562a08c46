"""What provenance costs: tokens per second of a loader with it and without, in interleaved pairs.

    python scripts/bench_provenance.py                    # the corpus of scripts/bench.py, nine pairs
    python scripts/bench_provenance.py --packing best_fit --sources 3

Both loaders stream the same rows in one process, in turns of ``--batches`` batches; the order within a pair alternates.
Printed is the median of the pairs' ratios, and the least and the largest. Without workers (the default) all is done in
this process and its CPU time counts, which other load on the machine changes little; with workers it is the wall clock.
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
    from collections.abc import Callable, Iterator

    import torch

    from streamfeed import StreamLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "streamfeed" / "bench")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--packing", default="concat")
    parser.add_argument("--sources", type=int, default=1, help="the corpus so many times, as a mixture")
    arguments = parser.parse_args()
    if not (arguments.folder / "done").exists():
        sys.exit(f"there is no corpus in {arguments.folder}: run scripts/bench.py first, which makes it")
    pairs = [pair(arguments, turn) for turn in range(arguments.pairs)]
    ratios = sorted(traced / plain for plain, traced in pairs)
    plain, traced = (statistics.median(column) / 1e6 for column in zip(*pairs, strict=True))
    sys.stdout.write(
        f"{arguments.packing}, {arguments.sources} source(s), {arguments.workers} workers, {len(pairs)} pairs: "
        f"{plain:.2f} M tokens/s without, {traced:.2f} with; ratio {statistics.median(ratios):.3f} "
        f"(from {ratios[0]:.3f} to {ratios[-1]:.3f})\n"
    )


def pair(arguments: argparse.Namespace, turn: int) -> tuple[float, float]:
    """Return the tokens per second without and with provenance; which comes first alternates."""
    rates = {}
    for provenance in (False, True) if turn % 2 else (True, False):
        with loader_for(arguments, provenance=provenance) as loader:
            batches = iter(loader)
            next(batches)
            clock = time.perf_counter if arguments.workers else time.process_time
            rates[provenance] = rate(batches, arguments.batches, clock)
    return rates[False], rates[True]


def rate(batches: Iterator[dict[str, torch.Tensor]], count: int, clock: Callable[[], float]) -> float:
    began, tokens = clock(), 0
    for batch in islice(batches, count):
        tokens += batch["input_ids"].numel()
    return tokens / (clock() - began)


def loader_for(arguments: argparse.Namespace, *, provenance: bool) -> StreamLoader:
    from streamfeed import Source, StreamConfig, StreamLoader

    config = StreamConfig(
        [Source(str(arguments.folder / "data"))] * arguments.sources,
        tokenizer=str(arguments.folder / "tokenizer"),
        seq_len=arguments.seq_len,
        packing=arguments.packing,
    )
    return StreamLoader(config, arguments.batch_size, num_workers=arguments.workers, provenance=provenance)


if __name__ == "__main__":
    main()
