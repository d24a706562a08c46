"""What a rank's loader will need before anything of it is started: memory, shared memory, file descriptors.

Estimates are functions of the plan and of a glance at the sources. Memory has two figures. The ``likely`` one is what
measured runs took or a little more, for documents as large as those seen; ``most`` is what the settings allow. Both are
bounded by what there is: a lane holds no more text than its share of the corpus.

*A window* of a source in a lane is text of at most ``shuffle_buffer / lanes`` documents and ``window_bytes``. It is
gathered whole, copied once into pieces, and let go of piece by piece (``lane/texts.py``) before the next one is
gathered. So of a worker's windows one is there twice, and the others, which are let go of at different times, are half
there on average: ``window * (windows + 3) / 2``. At most all of them are whole: ``window * (windows + 1)``.

*Encoded*: a slice of half a MB of text (or a larger document), a third of a token a byte and four bytes a token; at
most half a token a byte. Of these a source of a lane holds one ahead and one in hand. Beside them a lane of best fit
holds the documents that were packed together, ``max(64 * seq_len, 2**19)`` tokens or 256 documents, until the last row
of them is handed out; one that groups by length, 512 samples. At most the next ones are there, too.

*Open shards*, one a source and lane: a block of lines with what it decodes to, or pages, dictionary and batch of
Parquet, and the window of a zstd frame.

The C library's heap takes ``HEAP`` times all these, whose parts come and go in another order (``loader/heap.py``); huge
pages, in which large windows lie, are at times part empty and take no more (``lane/pages.py``).

*A process*: interpreter, libraries, the engine with its scratch; of stores, their libraries and what is read ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.dataset.message import Layout, rounds_in
from streamfeed.lane.best_fit import WINDOW_DOCUMENTS, WINDOW_ROWS, WINDOW_TOKENS
from streamfeed.lane.sampling import SLICE_BYTES
from streamfeed.lane.single import GROUP_ROWS
from streamfeed.loader.glance import in_store
from streamfeed.loader.job import message_bytes
from streamfeed.loader.ring import ring_bytes
from streamfeed.storage.fetch import BUDGET, THREADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.dataset.share import Share
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.loader.glance import Glance
    from streamfeed.plan.plan import Plan, Rules, SourcePlan

__all__ = ["Amount", "Needs", "WorkerNeeds", "needs_of", "worker_descriptors"]

MB = 1 << 20

PROCESS = 90 * MB
"""A worker with its libraries and what its engine needs for any tokenizer, as a share of what all workers map (PSS)."""

ENGINE_FACTOR = 25
"""Bytes that the engine, and the one that checks it, take for each byte of the tokenizer's JSON: 12 and 13."""

FORK_SERVER = 30 * MB
"""The process that workers are forked from, with all that they import."""

HEAP = 1.4
"""What a heap takes for each byte in use."""

STORE = 60 * MB
"""Libraries of a store with their connections."""

OPEN_LINES, OPEN_PARQUET = 1 * MB, 5 * MB
"""An open shard: a block of lines and what it decodes to; pages, dictionary and a batch of a column."""

LIKELY_EXPANSION, MOST_EXPANSION = 3.0, 12.0
"""Bytes of text for each stored byte where shards are compressed (Parquet is)."""

MOST_DOCUMENTS = 4
"""Where documents were seen, the most is for windows of documents that are so many times as large."""

LIKELY_TOKENS, MOST_TOKENS = 1 / 3, 1 / 2
"""Tokens for each byte of text."""

TRAINER_FILES, WORKER_FILES = 16, 20
"""Descriptors that the trainer opens for all workers together, and those of a worker beside its shards."""

FILES_A_WORKER = 6
"""Descriptors of the trainer for each worker: two ends of a pipe, two of the process, the ring and its mapping."""

COLUMNS_A_FIELD = 3
"""Files that an open Parquet shard takes for each field of a record: one for each column in it."""


class Amount(NamedTuple):
    """Bytes: those that are likely to be needed, and the most."""

    likely: int = 0
    most: int = 0

    def plus(self, *others: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.likely + sum(one.likely for one in others), self.most + sum(one.most for one in others))

    def times(self, count: float) -> Amount:
        """Return it ``count`` times."""
        return Amount(int(self.likely * count), int(self.most * count))


class WorkerNeeds(NamedTuple):
    """What one process takes: ``windows`` of text, ``encoded`` rows, ``shards`` that are open, the ``process``.

    ``descriptors``: files that it has open.
    """

    windows: Amount
    encoded: Amount
    shards: Amount
    process: Amount
    descriptors: int

    @property
    def memory(self) -> Amount:
        """All of it."""
        return self.windows.plus(self.encoded, self.shards, self.process)


class Needs(NamedTuple):
    """What a rank takes: its ``workers`` (of none, the trainer in their place), ``shm`` bytes of shared memory.

    ``descriptors``: files that the trainer opens for its workers.
    """

    workers: Sequence[WorkerNeeds]
    shm: int
    descriptors: int

    @property
    def memory(self) -> Amount:
        """The memory of all workers, with what they share."""
        shared = self.shm + FORK_SERVER if self.shm else 0
        return Amount(shared, shared).plus(*(worker.memory for worker in self.workers))

    def summary(self) -> str:
        """Say in one line what the memory is for."""
        named = ("windows", "encoded rows", "open shards", "processes")
        sums = [Amount().plus(*parts) for parts in zip(*(worker[:4] for worker in self.workers), strict=True)]
        return ", ".join(f"{name} {megabytes(part.likely)}" for name, part in zip(named, sums, strict=True))


def megabytes(nbytes: int) -> str:
    """Return a size for people."""
    return f"{nbytes / 1e9:,.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:,.0f} MB"


def needs_of(
    plan: Plan, share: Share, glances: Sequence[Glance], workers: int, tokenizer: TokenizerSpec | None = None
) -> Needs:
    """Return what the rank of ``share`` takes with ``workers`` processes, if any; ``glances`` are of its sources."""
    count = min(workers, share.slots)
    hosted = [len(share.worker_slots(worker, max(1, count))) for worker in range(max(1, count))]
    engine = ENGINE_FACTOR * (0 if tokenizer is None else len(tokenizer.json))
    found = [_worker(plan, lanes, glances, engine, alone=not count) for lanes in hosted]
    if not count:
        return Needs(found, 0, 0)
    shm = sum(_ring(plan.rules, lanes, len(hosted)) for lanes in hosted) + _shared(plan)
    return Needs(found, shm, TRAINER_FILES + FILES_A_WORKER * count)


def worker_descriptors(plan: Plan, lanes: int) -> int:
    """Return how many files a worker with ``lanes`` lanes has open: a shard of every local source in each lane.

    Of a store, in place of shards, the connections of the threads that read ahead and of who waits.
    """
    files = WORKER_FILES
    for source in plan.sources:
        columns = 1
        if not source.shape.plain and _arrow(source):
            columns = COLUMNS_A_FIELD * len(source.shape.fields)
        files += THREADS + 4 if in_store(source) else lanes * columns
    return files


def _worker(plan: Plan, lanes: int, glances: Sequence[Glance], engine: int, *, alone: bool) -> WorkerNeeds:
    rules = plan.rules
    windows, encoded, shards = Amount(), Amount(), Amount()
    largest = Amount()
    for source, seen in zip(plan.sources, glances, strict=True):
        text = _share(source, rules.lanes)
        window = _window(rules, seen, text)
        windows = windows.plus(Amount(window.likely // 2, window.most).times(lanes))
        largest = max(largest, window)
        encoded = encoded.plus(_runs(rules, seen, text).times(lanes))
        shards = shards.plus(_open_shard(source, seen, text).times(lanes))
    windows = windows.plus(Amount(largest.likely * 3 // 2, largest.most))
    document = max((seen.document for seen in glances), default=1)
    text = Amount().plus(*(_share(source, rules.lanes) for source in plan.sources))
    encoded = encoded.plus(_packing(rules, document, text).times(lanes))
    process = Amount(engine, engine) if alone else Amount(PROCESS + engine, PROCESS + engine)
    if any(seen.remote for seen in glances):
        process = process.plus(Amount(STORE + BUDGET, STORE + 2 * BUDGET))
    files = worker_descriptors(plan, lanes)
    return WorkerNeeds(windows.times(HEAP), encoded.times(HEAP), shards.times(HEAP), process, files)


def _share(source: SourcePlan, lanes: int) -> Amount:
    """Return the text of a source that one lane has to itself in an epoch: on average, and where one unit is large."""
    stored = int(source.units.nbytes.sum())
    likely, most = (LIKELY_EXPANSION, MOST_EXPANSION) if _packed(source) else (1.0, 1.0)
    largest = max(-(-stored // lanes), int(source.units.nbytes.max()))
    return Amount(int(likely * -(-stored // lanes)), int(most * min(stored, 2 * largest)))


def _window(rules: Rules, seen: Glance, text: Amount) -> Amount:
    documents, nbytes = rules.window_limits(rules.lanes - 1, first=False)
    nbytes = max(nbytes, seen.document)
    likely = min(nbytes, documents * seen.document, text.likely)
    most = min(nbytes, documents * seen.document * MOST_DOCUMENTS) if seen.seen else nbytes
    return Amount(likely, max(likely, min(most, text.most)))


def _runs(rules: Rules, seen: Glance, text: Amount) -> Amount:
    """Return what is encoded of a source in one lane, ahead and in hand."""
    piece, width = SLICE_BYTES + seen.document, 4 + rules.flags
    likely = int(min(piece, text.likely) * LIKELY_TOKENS * width)
    return Amount(2 * likely, 2 * int(min(piece, text.most) * MOST_TOKENS * width))


def _packing(rules: Rules, document: int, text: Amount) -> Amount:
    """Return what a lane's packer holds of ids and flags beside runs: what was packed together and is handed out."""
    width = 4 + rules.flags
    tokens = 0
    if rules.packing == "best_fit":
        tokens = max(WINDOW_ROWS * rules.seq_len, WINDOW_TOKENS, int(WINDOW_DOCUMENTS * document * LIKELY_TOKENS))
    elif rules.group_by_length:
        tokens = GROUP_ROWS * min(rules.seq_len, int(document * LIKELY_TOKENS) + 1)
    return Amount(
        width * min(tokens, int(text.likely * LIKELY_TOKENS)), 2 * width * min(tokens, int(text.most * MOST_TOKENS))
    )


def _open_shard(source: SourcePlan, seen: Glance, text: Amount) -> Amount:
    held = OPEN_PARQUET if _arrow(source) else OPEN_LINES
    return Amount(
        min(held, 2 * text.likely) + min(seen.frame_window, text.likely),
        min(2 * held, 2 * text.most) + min(seen.frame_window, text.most),
    )


def _arrow(source: SourcePlan) -> bool:
    return any(kind.partition(".")[0] in {"parquet", "arrow"} for kind in source.shards.kind_names)


def _packed(source: SourcePlan) -> bool:
    """Whether a stored byte may be several of text."""
    return any(kind == "parquet" or kind.endswith((".gz", ".zst")) or "/" in kind for kind in source.shards.kind_names)


def _ring(rules: Rules, lanes: int, workers: int) -> int:
    layout = Layout.of(rules)
    return ring_bytes(rounds_in(message_bytes(layout, workers), lanes, rules.seq_len) * lanes, layout)


def _shared(plan: Plan) -> int:
    """Return the bytes of the plan's arrays, which all workers map: as a job is pickled, its arrays out of band."""
    arrays: list[object] = []
    for source in plan.sources:
        for table in (source.shards, source.units):
            arrays += [getattr(table, name) for name in table.__dataclass_fields__]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
