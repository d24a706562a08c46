"""What packing costs beside encoding: CPU time of one thread, from encoded samples to rows in a message.

    python scripts/bench_packing.py

For every packing a worker's part of the loader runs by itself, in place: lanes that take runs, pack them and keep their
state behind every row, and the host that writes messages of about a megabyte, states included. Reading is left out:
each lane's runs are encoded when the lane asks for one.

- *Encoding* is the time that the fast engine takes for those runs, nothing else.
- *All else* is the other CPU time until the messages stand in their buffers: packer, copies, the hash of the rows,
  tallies, states and their JSON. Every packing, ``concat`` as well, has to do most of it.
- *Packer* is the part of that which says what goes where, and *copies* the part which writes the rows to the message.

Both are of the same pass, run by run in turn, so that a machine whose speed changes changes both; passes of the
packings take turns. The table shows medians. The text is the Python code of this environment's packages, in documents
of log-normal length (sigma 1.0, and a median of 600 or of 60 tokens at four characters a token). No pass reads text
that an earlier one has read while there is other text; the engine has read 20 MB of it before, so that its cache is as
full as it gets. Its tokenizer is a byte-level BPE of 32,768 entries, trained on the sources of the standard library;
rows have 2,048 tokens.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sysconfig
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np

from streamfeed.encode.proof import thread_environment
from streamfeed.lane.lane import _packer as MAKE_PACKER  # noqa: N812
from streamfeed.loader.heap import Heap, give_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streamfeed.encode.protocol import Engine
    from streamfeed.lane.pack import Packed, Packer, Tokens
    from streamfeed.lane.runs import Run
    from streamfeed.plan.plan import Rules

SEQ_LEN = 2048
LANES = 4
SLICE_CHARACTERS = 512 << 10
WARM_CHARACTERS = 20 << 20
MOST_CHARACTERS = 240 << 20
LARGEST_FILE = 400 << 10
PACKINGS: dict[str, dict[str, Any]] = {
    "concat": {"packing": "concat"},
    "best_fit": {"packing": "best_fit"},
    "none": {"packing": "none"},
    "none, grouped": {"packing": "none", "group_by_length": True},
}


class Cost(NamedTuple):
    """What a pass took, in ns of CPU time a token, and the share of its rows' room that tokens fill."""

    encoding: float
    all_else: float
    packer: float
    copies: float
    filled: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=PACKINGS, action="append", help="packings to look at; all unless given")
    arguments = parser.parse_args()
    os.environ.update(thread_environment(1))
    Heap()  # as in a worker
    engine, text = make_engine(), Supply()
    for part in text.documents(600, WARM_CHARACTERS):
        engine.encode(part)
    give_back()
    for median, millions in ((600, 24), (60, 12)):
        compare(engine, text, median, millions << 20, arguments.rounds, arguments.only or list(PACKINGS))


def make_engine() -> Engine:
    """Train the tokenizer."""
    from streamfeed.encode.fast import FastokensEngine
    from streamfeed.encode.tokenizer import load_tokenizer
    from streamfeed.train.demo import train_tokenizer

    root = Path(sysconfig.get_path("stdlib"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(root.glob("*.py"))]
    with tempfile.TemporaryDirectory() as folder:
        train_tokenizer(texts, Path(folder) / "tokenizer", 32768)
        spec = load_tokenizer(Path(folder) / "tokenizer")
    return FastokensEngine(spec.json, spec.frame)


class Supply:
    """Text to cut documents from, front to back, and from the front again when there is no more."""

    def __init__(self) -> None:
        files = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
        np.random.default_rng(0).shuffle(files)
        parts: list[str] = []
        room = MOST_CHARACTERS
        for path in files:
            if room > 0 and path.stat().st_size <= LARGEST_FILE:
                parts.append(path.read_text(encoding="utf-8", errors="replace"))
                room -= len(parts[-1])
        self._text = "".join(parts)
        self._at = 0

    def documents(self, median: int, characters: int) -> list[list[str]]:
        """Return about so many characters in documents, in slices of about the size that lanes encode."""
        draw = np.random.default_rng(0)
        slices: list[list[str]] = []
        while characters > 0:
            some: list[str] = []
            room = SLICE_CHARACTERS
            while room > 0:
                some.append(self._take(int(4 * np.exp(draw.normal(np.log(median), 1.0))) + 8))
                room -= len(some[-1])
            slices.append(some)
            characters -= SLICE_CHARACTERS
        return slices

    def _take(self, size: int) -> str:
        if self._at + size > len(self._text):
            self._at = 0
        self._at += size
        return self._text[self._at - size : self._at]


def compare(engine: Engine, text: Supply, median: int, characters: int, rounds: int, names: list[str]) -> None:
    """Print what each packing costs, as a share of the encoding of the same documents."""
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, found in costs.items():
            found.append(cost(engine, text.documents(median, characters), PACKINGS[name]))
    print(f"documents with a median of {median} tokens, {rounds} passes a packing of {characters >> 20} MB")
    for name, found in costs.items():
        print(f"  {name:<14} encoding {statistics.median(one.encoding for one in found):6.2f} ns a token", end="")
        for part in ("all_else", "packer", "copies"):
            spent = statistics.median(getattr(one, part) for one in found)
            share = statistics.median(getattr(one, part) / one.encoding for one in found)
            print(f", {part.replace('_', ' ')} {spent:5.2f} ({share:5.1%})", end="")
        print(f", rows {found[0].filled:.1%} full")


def cost(engine: Engine, slices: list[list[str]], packing: dict[str, Any]) -> Cost:
    """Encode and pack ``slices``, dealt to the lanes in turn."""
    from streamfeed.dataset.host import Host
    from streamfeed.dataset.message import Buffers, Layout, rounds_in
    from streamfeed.dataset.share import Share
    from streamfeed.lane.lane import LaneTools
    from streamfeed.lane.state import LaneState
    from streamfeed.loader.job import MESSAGE_BYTES
    from streamfeed.plan.plan import Plan

    rules, encoded, parts = _rules(packing), Encoded(engine, slices), Parts()
    with (
        mock.patch("streamfeed.lane.lane.runs", encoded.runs),
        mock.patch("streamfeed.lane.lane.WindowReader"),
        mock.patch("streamfeed.lane.lane._packer", parts.packer),
    ):
        states = {lane: LaneState.start(1, 0) for lane in range(LANES)}
        tools = LaneTools([mock.Mock()], [mock.Mock()], [mock.Mock()])
        plan = Plan([mock.Mock(weight=1.0)], rules, {})
        host = Host(plan, Share(LANES, 0, 1), range(LANES), states, tools, first=0, first_epoch=0)
    rounds = rounds_in(MESSAGE_BYTES, LANES, SEQ_LEN)
    buffers = Buffers.private(rounds * LANES, Layout.of(rules))
    gc.collect()
    begin, rows, tokens = time.thread_time(), 0, 0
    while len(lengths := host.message(rounds, buffers).lengths):
        rows += int((lengths > 0).sum())
        tokens += int(lengths.sum())
    spent = time.thread_time() - begin
    if tokens != encoded.tokens:
        raise RuntimeError(f"{tokens} tokens came of {encoded.tokens}")
    each = 1e9 / tokens
    return Cost(
        encoding=each * encoded.seconds,
        all_else=each * (spent - encoded.seconds),
        packer=each * parts.packers,
        copies=each * parts.copies,
        filled=tokens / (rows * SEQ_LEN),
    )


class Parts:
    """CPU time of packers, and of copying the rows that they made."""

    def __init__(self) -> None:
        self.packers = 0.0
        self.copies = 0.0

    def packer(self, rules: Rules, lane: int, rows: int) -> Packer:
        """Return the packer that a lane would have, timed."""
        return _TimedPacker(self, MAKE_PACKER(rules, lane, rows))


class _TimedPacker:
    def __init__(self, parts: Parts, packer: Packer) -> None:
        self._parts = parts
        self._packer = packer

    def feed(self, run: Run) -> list[Packed]:
        begin = time.thread_time()
        done = self._packer.feed(run)
        self._parts.packers += time.thread_time() - begin
        return [self._timed(packed) for packed in done]

    def flush(self) -> Packed | None:
        begin = time.thread_time()
        last = self._packer.flush()
        self._parts.packers += time.thread_time() - begin
        return None if last is None else self._timed(last)

    def _timed(self, packed: Packed) -> Packed:
        return replace(packed, ids=_TimedTokens(self._parts, packed.ids))


class _TimedTokens:
    def __init__(self, parts: Parts, tokens: Tokens) -> None:
        self._parts = parts
        self._tokens = tokens
        self.chains = tokens.chains

    def __len__(self) -> int:
        return len(self._tokens)

    def write(self, rows: range, plane: NDArray[Any], place: range) -> None:
        begin = time.thread_time()
        self._tokens.write(rows, plane, place)
        self._parts.copies += time.thread_time() - begin


def _rules(packing: dict[str, Any]) -> Rules:
    from streamfeed.plan.plan import Rules

    return Rules(
        lanes=LANES, seq_len=SEQ_LEN, seed=0, shuffle_buffer=16384, window_bytes=1 << 26, epochs=1, on_error="raise",
        skip_budget=0, **packing,
    )  # fmt: skip


class Encoded:
    """Runs of lanes, each encoded when it is asked for, and the CPU time that this takes."""

    def __init__(self, engine: Engine, slices: list[list[str]]) -> None:
        self._engine = engine
        self._slices = slices
        self.seconds = 0.0
        self.tokens = 0

    def runs(self, *_: object, lane: int, **__: object) -> Iterator[Run]:
        """Yield the runs of ``lane``; in the place of those that a lane reads."""
        from streamfeed.lane.runs import Run
        from streamfeed.lane.state import Place
        from streamfeed.lane.texts import Texts
        from streamfeed.lane.windows import Window
        from streamfeed.stats import Tally

        own = self._slices[lane::LANES]
        window = Window(Place(), Place(), Texts([b""] * sum(map(len, own))), "", Tally())
        first = 0
        for texts in own:
            begin = time.thread_time()
            made = self._engine.encode(texts)
            self.seconds += time.thread_time() - begin
            self.tokens += len(made.ids)
            yield Run(0, made.ids, made.offsets, window, first, len(texts))
            first += len(texts)


if __name__ == "__main__":
    main()
