"""What the counters of every hand-over cost: the CPU time of a stream with them and without, in interleaved pairs.

    python scripts/bench_counters.py                       # 20 pairs, the corpus of bench.py
    python scripts/bench_counters.py --seq-len 128 --batch-size 8      # small batches, the worst case
    python scripts/bench_counters.py --count               # how many spans there are, times the least that one takes

Each measurement is a fresh worker process, forked, and its trainer, from the first batch on: CPU seconds of both for
the same number of tokens. Without counters means spans that do nothing (a lock written in C) and headers without
figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
import timeit
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from bench import make_corpus  # beside this file

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.loader.job import MESSAGE_BYTES
from streamfeed.loader.profile import Profile
from streamfeed.stages import STAGES, Stages


class NoStage:
    """A stage whose spans and counts cost next to nothing."""

    def __init__(self) -> None:
        self.busy = self.starved = self.blocked = threading.RLock()

    def count(self, items: int, nbytes: int = 0) -> None:
        pass

    def passing(self) -> threading.RLock:
        return self.busy


class NoStages:
    """In place of :class:`~streamfeed.stages.Stages`."""

    def __init__(self, _: object = None) -> None:
        for name in STAGES:
            setattr(self, name, NoStage())

    def to_bytes(self) -> bytes:
        return b""


HOMES = ("streamfeed.loader.loader.Stages", "streamfeed.loader.worker.Stages")


def main() -> None:
    arguments = parse()
    make_corpus(arguments.folder, [Path(threading.__file__).parent])
    if arguments.count:
        print(json.dumps(counted_spans(arguments), indent=1))
        return
    pairs = []
    for number in range(arguments.pairs):
        order = (True, False) if number % 2 else (False, True)
        found = {counted: measured(arguments, counted=counted) for counted in order}
        pairs.append((found[True], found[False]))
        ratio = found[True] / found[False]
        sys.stderr.write(
            f"pair {number + 1}: {found[True]:.3f} s with, {found[False]:.3f} s without, {ratio - 1:+.2%}\n"
        )
    ratios = sorted(with_ / without for with_, without in pairs)
    quartiles = statistics.quantiles(ratios, n=4)
    result: dict[str, Any] = {
        "pairs": len(ratios),
        "cost_median": statistics.median(ratios) - 1,
        "cost_quartiles": [quartiles[0] - 1, quartiles[2] - 1],
        "tokens": arguments.tokens,
        "seconds_with": statistics.median(one for one, _ in pairs),
    }
    print(json.dumps(result, indent=1))


def measured(arguments: argparse.Namespace, *, counted: bool) -> float:
    """CPU seconds of trainer and worker for so many tokens."""
    with ExitStack() as stack:
        for home in () if counted else HOMES:
            stack.enter_context(mock.patch(home, NoStages))
        return stream(arguments)


def stream(arguments: argparse.Namespace, profile: Profile | None = None) -> float:
    config = StreamConfig(
        [Source(str(arguments.folder / "data"))],
        tokenizer=str(arguments.folder / "tokenizer"),
        seq_len=arguments.seq_len,
        packing=arguments.packing,
    )
    tokens = 0
    with StreamLoader(config, arguments.batch_size, num_workers=1, start_method="fork", profile=profile) as loader:
        batches = iter(loader)
        for _ in range(8):
            next(batches)
        (worker,) = psutil.Process().children()
        begin = time.process_time() + cpu(worker)
        while tokens < arguments.tokens:
            tokens += next(batches)["input_ids"].numel()
        return time.process_time() + cpu(worker) - begin


def counted_spans(arguments: argparse.Namespace) -> dict[str, float]:
    """Spans and messages of so many tokens, and what they take of the CPU time of trainer and worker."""
    profile, stages = Profile(most=10**8), Stages()
    seconds = stream(arguments)
    stream(arguments, profile)

    def span() -> None:
        with stages.read.busy:
            pass

    of_a_span = min(timeit.repeat(span, number=2000, repeat=200)) / 2000
    of_a_message = 2 * min(timeit.repeat(stages.to_bytes, number=200, repeat=100)) / 200
    messages = arguments.tokens * 4 / MESSAGE_BYTES
    cost = len(profile) * of_a_span + messages * of_a_message
    return {"spans": len(profile), "span_us": of_a_span * 1e6, "seconds": seconds, "cost": cost / seconds}


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "streamfeed" / "bench")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=30_000_000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--packing", default="concat")
    return parser.parse_args()


if __name__ == "__main__":
    main()
