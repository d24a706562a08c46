"""Streams for the oracles: corpora of ids in any format, loaders on any topology, and what they gave."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamfeed import Source, StreamConfig, StreamLoader, merge_states
from tests.corpora import FIELDS, FORCED, as_written, texts_with_ids, write_shard

if TYPE_CHECKING:
    from collections.abc import Sequence

Batches = list[dict[str, NDArray[np.int64]]]
CACHE = Path(tempfile.gettempdir()) / "streamfeed-test-proofs"
"""Where engine proofs are kept: a tokenizer of the tests is proven once a machine."""


def corpus(folder: Path, kind: str, shards: Sequence[int], *, words: int = 12) -> list[str]:
    """Write shards of ``kind`` with that many records each; return all texts in listed order."""
    texts: list[str] = []
    for index, count in enumerate(shards):
        some = as_written(kind, texts_with_ids(count, first=len(texts), words=words))
        write_shard(kind, folder / f"{index:03}.{kind}", some, first=len(texts))
        texts += [text for text in some if text is not None]
    return texts


def stream(folder: Path, kind: str, tokenizer: Any, **changes: Any) -> StreamConfig:
    """A small stream over ``folder``: several windows a lane and several rows a window."""
    config = StreamConfig(
        [Source(str(folder), text=FIELDS[kind], format=FORCED.get(kind))],
        tokenizer=tokenizer,
        seq_len=32,
        shuffle_buffer=24,
        lanes=4,
    )
    return replace(config, **changes)


class InProcessLoader(StreamLoader):
    """A loader whose ``workers`` are hosts in this process: a worker's own code without the seconds of its start."""

    def __init__(self, config: StreamConfig, batch_size: int, *, workers: int = 0, **options: Any) -> None:
        super().__init__(config, batch_size, num_workers=0, **options)
        self.num_workers = workers


def take(loader: StreamLoader, most: int | None = None) -> Batches:
    """Hand out up to ``most`` batches (all of a finite pass) as numpy arrays."""
    batches: Batches = []
    if most != 0:
        take_into(batches, loader, most)
    return batches


def take_into(batches: Batches, loader: StreamLoader, most: int | None = None) -> None:
    """As :func:`take`, into ``batches``, which holds what came in front of an error."""
    for batch in loader:
        batches.append({name: tensor.numpy() for name, tensor in batch.items()})
        if len(batches) == most:
            break


@dataclass
class Run:
    """The ranks of one run, each with its loader."""

    loaders: list[InProcessLoader]

    @classmethod
    def start(
        cls, config: StreamConfig, ranks: int, batch_size: int, workers: int = 0, state: dict[str, Any] | None = None
    ) -> Run:
        """Make the loaders, on ``state`` if there is one."""
        loaders = [
            InProcessLoader(config, batch_size, workers=workers, rank=rank, world_size=ranks, cache_dir=CACHE)
            for rank in range(ranks)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        return cls(loaders)

    def take(self, most: int | None = None) -> list[Batches]:
        """Hand out up to ``most`` batches on every rank."""
        return [take(loader, most) for loader in self.loaders]

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the merged state, through JSON as a checkpoint would."""
        merged: dict[str, Any] = json.loads(json.dumps(merge_states([one.state_dict(batches) for one in self.loaders])))
        return merged


def global_rows(per_rank: Sequence[Batches], after: int = 0, name: str = "input_ids") -> dict[int, tuple[int, ...]]:
    """Return the ranks' rows by their number in the stream; ``after`` rows were handed out before these."""
    ranks = len(per_rank)
    rows: dict[int, tuple[int, ...]] = {}
    for rank, batches in enumerate(per_rank):
        first = max(0, -(-(after - rank) // ranks))
        ours = (row for batch in batches for row in batch[name])
        rows |= {(first + i) * ranks + rank: tuple(row.tolist()) for i, row in enumerate(ours)}
    return rows


def lane_tokens(per_rank: Sequence[Batches], lanes: int) -> list[list[int]]:
    """Return every lane's tokens, one row behind the other, with padding: row ``g`` is of lane ``g % lanes``."""
    tokens: list[list[int]] = [[] for _ in range(lanes)]
    for g, row in sorted(global_rows(per_rank).items()):
        tokens[g % lanes] += row
    return tokens


def documents(per_rank: Sequence[Batches], lanes: int, eos: int) -> list[list[int]]:
    """Return the complete documents of all lanes, lane by lane: what stands between EOS tokens (padding is EOS too)."""
    found: list[list[int]] = []
    for tokens in lane_tokens(per_rank, lanes):
        document: list[int] = []
        for token in tokens:
            if token != eos:
                document.append(token)
            elif document:
                found.append(document)
                document = []
    return found


def equal(left: Batches, right: Batches) -> bool:
    """Say whether two lists of batches are the same to the bit."""
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(left, right, strict=True)
    )
