"""What packing costs beside encoding: CPU time of both on the same documents, in turn.

    python scripts/bench_packing.py

Documents are cut out of the sources of this Python's standard library, of log-normal length (median 600 tokens, sigma
1.0, and as many again with a median of 60); rows have 2048 tokens. The engine is the fast one, with a byte-level BPE of
32,768 entries trained there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.encode.proof import thread_environment
from streamfeed.loader.heap import Heap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfeed.encode.protocol import Engine
    from streamfeed.lane.pack import Packer
    from streamfeed.lane.runs import Run

SEQ_LEN = 2048
SLICE_CHARACTERS = 512 << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.update(thread_environment(1))
    Heap()  # as in a worker
    engine, text = prepare()
    for median in (600, 60):
        compare(engine, documents(text, median), median, arguments.rounds)


def prepare() -> tuple[Engine, str]:
    """Return the engine, and all text."""
    from streamfeed.encode.fast import FastokensEngine
    from streamfeed.encode.tokenizer import load_tokenizer
    from streamfeed.train.demo import train_tokenizer

    root = Path(sysconfig.get_path("stdlib"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(root.glob("*.py"))]
    with tempfile.TemporaryDirectory() as folder:
        train_tokenizer(texts, Path(folder) / "tokenizer", 32768)
        spec = load_tokenizer(Path(folder) / "tokenizer")
    return FastokensEngine(spec.json, spec.frame), "".join(texts)


def documents(text: str, median: int, count: int = 4096) -> list[str]:
    """Cut documents of log-normal length, about four characters a token, out of ``text``."""
    draw = np.random.default_rng(0)
    sizes = (4 * np.exp(draw.normal(np.log(median), 1.0, count))).astype(int) + 8
    begins = draw.integers(0, max(1, len(text) - int(sizes.max())), count)
    return [text[begin : begin + size] for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)]


def compare(engine: Engine, texts: list[str], median: int, rounds: int) -> None:
    """Print what each packing costs, as a share of the encoding of the same documents."""
    from streamfeed.lane.best_fit import BestFitPacker
    from streamfeed.lane.pack import ConcatPacker
    from streamfeed.lane.single import GroupPacker, SinglePacker

    packers: dict[str, Callable[[], Packer]] = {
        "concat": lambda: ConcatPacker(SEQ_LEN),
        "best_fit": lambda: BestFitPacker(SEQ_LEN, 0, 0, 0),
        "none": lambda: SinglePacker(SEQ_LEN),
        "none, grouped": lambda: GroupPacker(SEQ_LEN, 0, 0),
    }
    spent: dict[str, list[float]] = {name: [] for name in ("encode", *packers)}
    tokens = 0
    for _ in range(rounds):
        held = {name: make() for name, make in packers.items()}
        total = dict.fromkeys(spent, 0.0)
        tokens = 0
        for run in encoded(engine, texts, total):
            tokens += len(run.ids)
            for name, packer in held.items():  # as in a lane, right behind the encoding
                begin = time.process_time()
                packer.feed(run)
                total[name] += time.process_time() - begin
        for name, seconds in total.items():
            spent[name].append(seconds)
    encoding = statistics.median(spent["encode"])
    print(f"{len(texts):,} documents, median {median} tokens: {tokens / 1e6:.1f} M tokens, {rounds} rounds")
    for name, seconds in spent.items():
        middle = statistics.median(seconds)
        print(f"  {name:<14}{1e9 * middle / tokens:7.2f} ns a token{100 * middle / encoding:8.1f} % of encoding")


def encoded(engine: Engine, texts: list[str], spent: dict[str, float]) -> Iterator[Run]:
    """Encode in slices of about the size that lanes make."""
    from streamfeed.lane.runs import Run
    from streamfeed.lane.state import Place
    from streamfeed.lane.texts import Texts
    from streamfeed.lane.windows import Window
    from streamfeed.stats import Tally

    window = Window(Place(), Place(), Texts([]), "", Tally())
    start = 0
    while start < len(texts):
        stop, size = start, 0
        while stop < len(texts) and size < SLICE_CHARACTERS:
            size += len(texts[stop])
            stop += 1
        begin = time.process_time()
        made = engine.encode(texts[start:stop])
        spent["encode"] += time.process_time() - begin
        yield Run(0, made.ids, made.offsets, window, start, stop - start)
        start = stop


if __name__ == "__main__":
    main()
