"""The stream as a plain ``IterableDataset`` of rows, for loaders that bring their own workers and batching."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import pad
from torch.utils.data import IterableDataset, get_worker_info

from streamfeed.dataset.batch import IGNORED, BatchArrays
from streamfeed.dataset.message import Buffers
from streamfeed.dataset.resolve import Resolved
from streamfeed.dataset.share import Share
from streamfeed.dataset.state import StreamState
from streamfeed.encode.objectives.build import verdict_for
from streamfeed.encode.proof import default_cache_dir
from streamfeed.errors import ConfigError, StateError
from streamfeed.loader.columns import columns_for
from streamfeed.loader.job import Job, Messages
from streamfeed.loader.reader import Filled
from streamfeed.loader.report import no_row, tally_of
from streamfeed.stats import ReadStats
from streamfeed.topology import Ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfeed.config import StreamConfig
    from streamfeed.dataset.message import Message
    from streamfeed.loader.columns import Columns

__all__ = ["StreamDataset"]

logger = logging.getLogger(__name__)

Row = dict[str, torch.Tensor]


class StreamDataset(IterableDataset[Row]):
    """Rows of one rank: ``input_ids``, ``labels``, ``position_ids``, int64 ``[T]``, those of :class:`StreamLoader`.

    With ``packing="none"`` rows are as long as their samples: give :meth:`collate` to the ``DataLoader``.

    For ``DataLoader`` and torchdata's ``StatefulDataLoader``: every row exactly once, and an exact resume with the same
    ranks and workers. The *global* order of rows is :class:`StreamLoader`'s alone, since torch fills a batch from one
    worker. Empty rows (of lanes that have ended) are left out. Iterating continues where the state stands; after the
    end of a finite pass it begins the next (in torch's workers only where they are persistent: others are copies, made
    anew for every pass from a dataset that has not moved).
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        cache_dir: Path | None = None,
    ) -> None:
        self.config = config
        ranks = Ranks.find(rank, world_size)
        self.rank, self.world_size = ranks.number, ranks.size
        self._cache_dir = default_cache_dir() if cache_dir is None else cache_dir
        resolved = Resolved(config, once=ranks.once, cache_dir=self._cache_dir)
        self.tokenizer = resolved.tokenizer
        self._verdict = ranks.once(
            lambda: verdict_for(config.objective, resolved.tokenizer, config.seq_len, self._cache_dir)
        )
        self._plan = resolved.plan()
        self._share = Share(self._plan.lanes, self.rank, self.world_size)
        self._base = StreamState(self._plan.fingerprint, versions=self._plan.versions())
        self._seat = (self.rank, self.world_size, 0, 1)
        self._taken = 0
        self._states = b"{}"
        self._ended = False

    def __iter__(self) -> Iterator[Row]:
        """Yield this torch worker's rows (all of the rank's outside of workers).

        Raises :class:`EmptyStreamError` where a pass outside of workers, or in the only one, has no row, and
        :class:`ConfigError` where Accelerate has taken the rank's rows for those of all ranks.
        """
        if self.world_size > 1 and _divided_again():
            raise ConfigError(
                "Accelerate divides these rows among the ranks, but they are one rank's already: most would be lost. "
                "Leave the DataLoader out of accelerator.prepare(), and the StreamDataset out of Trainer: use "
                "streamfeed.integrations.huggingface.StreamTrainer"
            )
        return self._iterate()

    def _iterate(self) -> Iterator[Row]:
        if self._ended:
            self._start_at(self._base.next_pass(self.config.epochs or 0), 0)
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        self._sit((self.rank, self.world_size, worker, workers))
        workers_used = min(workers, self._share.slots)
        if worker >= workers_used:
            return
        self._start_at(StreamState.from_json(self.state_dict()["stream"]), self._taken)
        yield from self._rows(self._job(worker, workers_used))
        self._ended = True

    def collate(self, rows: Sequence[Row]) -> Row:
        """Return a batch of rows, padded to the longest: ids with the tokenizer's pad, labels with -100."""
        longest = max(row["input_ids"].shape[0] for row in rows)
        fill = {"input_ids": self.tokenizer.padding, "labels": IGNORED}
        batch = {}
        for name in rows[0]:
            column = [row[name] for row in rows]
            if column[0].ndim:
                column = [pad(one, (0, longest - one.shape[0]), value=fill.get(name, 0)) for one in column]
            batch[name] = torch.stack(column)
        return batch

    def _start_at(self, state: StreamState, taken: int) -> None:
        self._base, self._taken, self._states, self._ended = state, taken, b"{}", False

    def _sit(self, seat: tuple[int, int, int, int]) -> None:
        """Note which rank of how many, and which worker of how many, the rows are for."""
        if self._taken and seat != self._seat:
            raise StateError(
                f"a StreamDataset continues where its state was taken: that was {_named(self._seat)}, "
                f"this is {_named(seat)}; StreamLoader resumes on any topology"
            )
        self._seat = seat

    def _job(self, worker: int, workers: int) -> Job:
        slots = self._share.worker_slots(worker, workers)
        turn, index = divmod(self._taken, len(slots))
        return Job(
            plan=self._plan,
            objective=self.config.objective,
            tokenizer=self.tokenizer,
            verdict=self._verdict,
            cache_dir=self._cache_dir,
            share=self._share,
            worker=worker,
            workers=workers,
            states=self._base.lane_states(len(self._plan.sources)),
            first=turn * self._share.slots + slots[index],
            first_epoch=self._base.first_epoch,
        )

    def _rows(self, job: Job) -> Iterator[Row]:
        messages = Messages(job.host(ReadStats(), None), job)
        buffers = Buffers.private(job.rows, job.layout)
        columns = columns_for(self.config, self.tokenizer, self._share, self._base.number)
        slots = job.slots
        while True:
            message = messages.next(buffers)
            self._states = message.states
            if not len(message.ids):
                if not self._taken and job.workers == 1:  # among several, others may have rows
                    raise no_row(tally_of([message.states]), self.rank, self.world_size)
                return
            for index in range(len(message.ids)):
                turn, place = divmod(self._taken, len(slots))
                self._taken += 1
                if message.lengths[index]:
                    number = turn * self._share.slots + slots[place]
                    yield _row(message, index, self.tokenizer.padding, number, columns)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this torch worker as plain JSON, as of the last row yielded."""
        from orjson import loads

        lanes = {**{str(lane): state.to_json() for lane, state in self._base.lanes.items()}, **loads(self._states)}
        stream = replace(self._base, rows=0, ended=False, lanes={}).to_json()
        return {
            "stream": {**stream, "lanes": lanes},
            "seat": list(self._seat),
            "taken": self._taken,
            "ended": self._ended,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where ``state`` was taken, in the same worker of as many.

        Raises :class:`StateError` where it does not fit.
        """
        try:
            stream, taken, ended = StreamState.from_json(state["stream"]), int(state["taken"]), bool(state["ended"])
            rank, world_size, worker, workers = map(int, state["seat"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"this is not the state of a StreamDataset: {error!r}") from error
        stream.check(self._plan.fingerprint)
        info = get_worker_info()
        for line in stream.version_warnings(self._plan) if info is None or info.id == 0 else ():
            logger.warning("%s", line)
        self._start_at(replace(stream, versions=self._plan.versions()), taken)
        self._ended = ended
        self._seat = (rank, world_size, worker, workers)


def _divided_again() -> bool:
    """Say whether Accelerate's loader iterates, as far as it shows: in its frames, or as the dataset of a worker."""
    info = get_worker_info()
    if info is not None and type(info.dataset).__module__.startswith("accelerate."):
        return True
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            return True
        frame = frame.f_back
    return False


def _named(seat: tuple[int, int, int, int]) -> str:
    rank, world_size, worker, workers = seat
    return f"rank {rank} of {world_size}, worker {worker} of {workers}"


def _row(message: Message, index: int, filler: int, number: int, columns: Columns | None) -> Row:
    """Return row ``index`` of a message, the ``number``-th of the rank."""
    seq_len = message.ids.shape[1]
    planes = {name: torch.empty((1, seq_len), dtype=torch.int64) for name in ("input_ids", "labels", "position_ids")}
    own = slice(index, index + 1)
    arrays = BatchArrays(
        *(tensor.numpy() for tensor in planes.values()),
        flags=None if message.flags is None else message.flags[own],
        values=None if message.values is None else message.values[own].copy(),
    )
    arrays.put(slice(0, 1), message.ids[own])
    begin, end = np.searchsorted(message.starts, (index * seq_len, (index + 1) * seq_len))
    pieces = arrays.finish(message.lengths[own], [message.starts[begin:end] - index * seq_len], filler)
    if columns is not None:
        planes = columns.make(arrays, Filled(message.lengths[own], pieces, number), 1, [planes])[0]
    return {name: tensor[0] for name, tensor in planes.items()}
