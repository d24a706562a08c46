"""What ranks do in the tests: functions of rank, size and JSON, run by ``tests/distributed/zygote.py``."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.errors import StreamfeedError
from streamfeed.topology import Ranks
from tests.streams import CACHE


def _config(corpus: str, tokenizer: str, **changes: Any) -> StreamConfig:
    source = Source(corpus, text="text")
    return StreamConfig([source], tokenizer=tokenizer, seq_len=32, shuffle_buffer=24, lanes=4, **changes)


def _step() -> None:
    """A collective of training, in every step."""
    distributed.all_reduce(torch.ones(1))


def passes(rank: int, size: int, *, corpus: str, tokenizer: str, batch: int, cases: list[dict[str, Any]]) -> Any:
    """Make passes over a finite stream, with a collective in every step; return the ids of the rows of every case."""
    made = []
    for case in cases:
        options = dict(case)
        count = options.pop("passes")
        config = _config(corpus, tokenizer, epochs=options.pop("epochs"))
        found = []
        with StreamLoader(config, batch, cache_dir=CACHE, **options) as loader:
            for _ in range(count):
                rows: list[list[int]] = []
                for one in loader:
                    _step()
                    rows += one["input_ids"].tolist()
                found.append(rows)
        made.append(found)
    return made


def save(rank: int, size: int, *, corpus: str, tokenizer: str, batch: int, steps: int, workers: int) -> Any:
    """Take ``steps`` batches of a repeating stream; return the rows, and the state as every rank has it."""
    loader = StreamLoader(_config(corpus, tokenizer), batch, num_workers=workers, cache_dir=CACHE)
    with loader:
        rows = [row for _, one in zip(range(steps), loader, strict=False) for row in one["input_ids"].tolist()]
        return {"rows": rows, "state": loader.state_dict()}


def resume(
    rank: int, size: int, *, corpus: str, tokenizer: str, batch: int, steps: int, workers: int, state: dict[str, Any]
) -> Any:
    """Go on from ``state`` for ``steps`` batches; return the rows."""
    loader = StreamLoader(_config(corpus, tokenizer), batch, num_workers=workers, cache_dir=CACHE)
    with loader:
        loader.load_state_dict(state)
        return [row for _, one in zip(range(steps), loader, strict=False) for row in one["input_ids"].tolist()]


def read_a_store(
    rank: int, size: int, *, uri: str, options: dict[str, Any], tokenizer: str, workers: int, batches: int
) -> Any:
    """Take batches of 4 rows of a store, whose lanes are as many as all workers; return the rows."""
    source = Source(uri, text="text", storage_options=options)
    config = StreamConfig([source], tokenizer=tokenizer, seq_len=32, shuffle_buffer=24, lanes=size * workers)
    with StreamLoader(config, 4, num_workers=workers, cache_dir=CACHE) as loader:
        return [row for batch in itertools.islice(loader, batches) for row in batch["input_ids"].tolist()]


def once(rank: int, size: int, *, folder: str) -> Any:
    """Do something on one rank for all, which works, and which fails; return what was heard of the failure."""

    def make() -> dict[str, int]:
        Path(folder, f"made-by-{rank}").touch()
        return {"rank": rank}

    def fail() -> None:
        raise RuntimeError("no such bucket")

    ranks = Ranks.find()
    assert ranks.once(make) == {"rank": 0}
    assert Ranks.find(0, 2, environment={}).once(lambda: rank) == rank, "a group of another size is another group"
    try:
        ranks.once(fail)
    except (StreamfeedError, RuntimeError) as error:
        return str(error)
    return ""


def hear_of_a_death(rank: int, size: int, *, corpus: str, tokenizer: str) -> Any:
    """Iterate a finite stream for ever; tell when the first batch is there, and what ended it and when."""
    loader = StreamLoader(_config(corpus, tokenizer, epochs=1_000_000), 1, cache_dir=CACHE)
    begin = time.monotonic()
    try:
        for number, _ in enumerate(loader):
            if number == 20:
                Path(corpus).parent.joinpath("begun").write_bytes(b"%d" % rank)  # a pipe
                begin = time.monotonic()
            if number > 20 and rank == 0:
                begin = time.monotonic()
    except StreamfeedError as error:
        return {"error": type(error).__name__, "said": str(error), "seconds": time.monotonic() - begin}
    return None


def start(rank: int, size: int, *, fails: int) -> Any:
    """Start up on all ranks, one of which cannot."""
    ranks = Ranks.find()

    def begin() -> str:
        if rank == fails:
            raise OSError(28, "No space left on device", "/scratch")
        return "began"

    try:
        return ranks.together(begin)
    except (StreamfeedError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def groups(rank: int, size: int) -> Any:
    """Find the ranks in the default group, and in one of a part of the processes."""
    everyone = Ranks.find()
    part = distributed.new_group([1, 2])
    found: list[Any] = [[everyone.number, everyone.size, everyone.sum([1, rank])]]
    if rank in {1, 2}:
        own = Ranks.find(group=part)
        other = own.another()
        found += [
            [own.number, own.size, own.sum([1, rank])],
            own.gather(rank),
            other.ask_largest([rank, -rank]).answer(),
            own.once(lambda: f"made by {rank}"),
        ]
    return found
