"""Lanes without a loader: plans over small corpora, an engine whose tokens are bytes, and what a lane gave."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from streamfeed.encode.objectives.lm import LmSamples
from streamfeed.encode.protocol import Encoded
from streamfeed.formats.detect import make_format
from streamfeed.formats.shape import Shape
from streamfeed.lane.ahead import AheadThread
from streamfeed.lane.lane import Block, Lane, LaneTools
from streamfeed.lane.sampling import Sampler
from streamfeed.lane.state import LaneState, Place
from streamfeed.lane.windows import Window, WindowReader
from streamfeed.plan.plan import Plan, Rules, SourceHands, SourcePlan
from streamfeed.plan.shards import ShardTable
from streamfeed.plan.split import Splitter, split_sources
from streamfeed.storage.files import ShardFile
from streamfeed.storage.store import Store
from tests.corpora import kind_of_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from streamfeed.config import OnError
    from streamfeed.encode.protocol import Engine
    from streamfeed.lane.pack import Packed, Tokens
    from streamfeed.stats import ReadStats

EOS, BOS = 256, 257
SILENT = "~"
"""A text that begins with this holds no tokens."""


class ByteEngine:
    """Every UTF-8 byte is a token; behind them the EOS, before them ``bos`` if there is one."""

    name = "bytes"

    def __init__(self, bos: int | None = None) -> None:
        self._begin = [] if bos is None else [bos]

    def encode(self, texts: Sequence[str]) -> Encoded:
        data = [[] if not text or text.startswith(SILENT) else [*self._begin, *text.encode(), EOS] for text in texts]
        offsets = np.zeros(len(data) + 1, dtype=np.int64)
        np.cumsum([len(one) for one in data], out=offsets[1:])
        return Encoded(np.asarray(list(itertools.chain(*data)), dtype=np.int32), offsets)


def table(folder: Path, kind: str) -> ShardTable:
    """The shards of ``folder`` by name."""
    paths = sorted(folder.iterdir())
    return ShardTable.build(
        [str(path) for path in paths], [path.stat().st_size for path in paths], [kind_of_reader(kind)] * len(paths)
    )


def splitter(shards: ShardTable, text: str | None = "text") -> Splitter:
    """The function that cuts a shard of ``shards``, as ``resolve`` makes it."""
    return lambda shard, max_bytes: make_format(shards.kind(shard), Shape(text)).split(
        ShardFile(shards.url(shard), int(shards.sizes[shard])), max_bytes
    )


def rules(**changes: Any) -> Rules:
    """Rules of a small stream."""
    standard: dict[str, Any] = {
        "lanes": 1,
        "seq_len": 16,
        "seed": 0,
        "shuffle_buffer": 8,
        "window_bytes": 1 << 20,
        "epochs": None,
        "on_error": "raise",
        "skip_budget": 1000,
    }
    return Rules(**{**standard, **changes})


def plan_of(
    *folders: Path, kind: str = "jsonl", lanes: int = 1, weights: Sequence[float] | None = None, **changes: Any
) -> Plan:
    """A plan whose sources are ``folders`` of shards of ``kind``."""
    text = "json.text" if kind.startswith("tar") else "text"
    tables = [table(folder, kind) for folder in folders]
    finite = changes.get("epochs") is not None
    split = split_sources(tables, [splitter(shards, text) for shards in tables], lanes, finite=finite)
    shares = [1.0] * len(folders) if weights is None else weights
    sources = [
        SourcePlan(shards, units, Shape(text), weight)
        for shards, units, weight in zip(tables, split.units, shares, strict=True)
    ]
    return Plan(sources, rules(**changes, lanes=split.lanes), {})


def tools_for(plan: Plan, bos: int | None = None, stats: ReadStats | None = None) -> LaneTools:
    """Tools with the byte engine."""
    hands = [SourceHands(source, plan.rules, index) for index, source in enumerate(plan.sources)]
    longest = 0 if plan.rules.packing == "concat" else plan.rules.seq_len
    return LaneTools([sampler(bos, longest)] * len(hands), hands, [Store(stats=stats)] * len(hands))


def sampler(bos: int | None = None, longest: int = 0, engine: Engine | None = None) -> Sampler:
    """Texts through the byte engine, or another."""
    return Sampler(None, LmSamples(engine or ByteEngine(bos)), longest=longest)


def lane_of(plan: Plan, lane: int = 0, state: LaneState | None = None, first_epoch: int = 0) -> Lane:
    """A lane of ``plan``, at its beginning unless there is a ``state``."""
    start = LaneState.start(len(plan.sources), first_epoch)
    return Lane(plan, lane, state or start, tools_for(plan), first_epoch=first_epoch)


def rows_of(lane: Lane, most: int | None = None) -> Iterator[tuple[tuple[int, ...], int, LaneState]]:
    """Yield up to ``most`` rows of ``lane``, each with its chain and the state behind it."""
    count = 0
    while (block := lane.next_block()) is not None:
        for index, row in enumerate(block_rows(block)):
            if count == most:
                return
            count += 1
            yield tuple(row), block.chains[index], block.state_behind(index)


def block_rows(block: Block | Packed) -> list[list[int]]:
    """The ids of every row."""
    packed = block.packed if isinstance(block, Block) else block
    return rows_in(packed, packed.ids, np.int32)


def rows_in(packed: Packed, tokens: Tokens, dtype: type[np.generic]) -> list[list[int]]:
    """What every row of ``packed`` is when it is written: its ids, or its flags."""
    rows = range(len(packed))
    plane = np.zeros((len(rows), packed.width), dtype=dtype)
    tokens.write(rows, plane, rows)
    lengths = [packed.width] * len(rows) if packed.lengths is None else packed.lengths.tolist()
    return [row[:length].tolist() for row, length in zip(plane, lengths, strict=True)]


def texts_of(tokens: Sequence[int]) -> list[str]:
    """The complete documents in ``tokens``: what stands before each EOS, without BOS."""
    found, document = [], bytearray()
    for token in tokens:
        if token == EOS:
            found.append(document.decode())
            document = bytearray()
        elif token != BOS:
            document.append(token)
    return found


def window_reader(
    plan: Plan, lane: int = 0, *, last_epoch: int | None = 1, on_error: OnError = "raise", source: int = 0
) -> WindowReader:
    """A reader of one source's windows."""
    rule = rules(**{**_fields(plan.rules), "on_error": on_error})
    hands = SourceHands(plan.sources[source], rule, source)
    return WindowReader(
        plan.sources[source], rule, hands, source=source, lane=lane, last_epoch=last_epoch, store=Store()
    )


def windows_of(plan: Plan, lane: int = 0, place: Place | None = None, **options: Any) -> list[Window]:
    """All windows of one lane, from ``place`` on."""
    return list(window_reader(plan, lane, **options).windows(place or Place()))


def _fields(rule: Rules) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in Rules.__dataclass_fields__}


def ids(*values: int) -> NDArray[np.int32]:
    """An int32 array."""
    return np.asarray(values, dtype=np.int32)


@contextmanager
def ahead_thread() -> Iterator[AheadThread]:
    """A thread that reads ahead, ended behind the block."""
    thread = AheadThread()
    try:
        yield thread
    finally:
        thread.stop()
        thread._thread.join()
