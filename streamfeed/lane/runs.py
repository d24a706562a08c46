"""Runs: consecutive samples of one source, encoded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.lane.mapping import Origins
from streamfeed.lane.origins import Table
from streamfeed.lane.state import SourceState
from streamfeed.stats import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from streamfeed.lane.sampling import Sampled, Sampler
    from streamfeed.lane.windows import Window, WindowReader

__all__ = ["Run", "runs"]


@dataclass(slots=True)
class Run:
    """Samples of documents ``first`` to ``first + documents - 1`` of ``window`` of source ``source``.

    Sample ``i`` of the run is ``ids[offsets[i]:offsets[i + 1]]``, with the same part of ``flags`` and with
    ``values[i]`` where there are any (see :class:`~streamfeed.encode.objectives.protocol.Samples`). Where its first
    tokens are in earlier rows already, ``offsets[0]`` is that number, negative. ``entered`` is what the window's tally
    adds when this run is taken (the first of its window), ``counted`` says that the first sample's tokens were counted
    before a resume. ``counts``: by name of a tally's field, int64 ``[samples + 1]``, how much lies before each sample.
    ``origins``: which documents the samples are of; None where each document is one sample. ``given``: how many samples
    the document behind the run has given in it. ``table``: which records the samples are made of, where that is asked
    for; the run's first token is token ``at`` of it.
    """

    source: int
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    window: Window
    first: int
    documents: int
    entered: Tally | None = None
    counted: bool = False
    flags: NDArray[np.uint8] | None = None
    values: NDArray[np.int64] | None = None
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    origins: Origins | None = None
    given: int = 0
    table: Table | None = None
    at: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def position(self, state: SourceState, taken: int, tokens: int = 0) -> SourceState:
        """Return ``state`` moved behind the first ``taken`` samples, or to the next window behind this one's last.

        ``tokens`` more were taken there.
        """
        document, sample, window = self.first + taken, 0, self.window
        tokens += state.tokens
        if taken >= len(self):
            document, sample = self.first + self.documents, self.given
        elif self.origins is not None:
            document, sample = self.first + int(self.origins.document[taken]), int(self.origins.sample[taken])
        if document >= len(window.texts):
            return SourceState(window.end, 0, 0, "", tokens, state.due)
        return SourceState(window.begin, document, sample, window.digest, tokens, state.due)

    def sample(self, index: int) -> Run:
        """Return sample ``index`` as a run of its own."""
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        own = slice(max(start, 0), stop)
        origins, first, documents, given = self.origins, self.first + index, 1, 0
        if origins is not None:
            first, documents, given = self.first, self.documents, self.given
            if index + 1 < len(self):
                documents, given = int(origins.document[index + 1]), int(origins.sample[index + 1])
        return Run(
            source=self.source,
            ids=self.ids[own],
            offsets=np.asarray([min(start, 0), stop - max(start, 0)], dtype=np.int64),
            window=self.window,
            first=first,
            documents=documents,
            counted=self.counted and index == 0,
            flags=None if self.flags is None else self.flags[own],
            values=None if self.values is None else self.values[index : index + 1],
            counts={
                name: before[index : index + 2] - before[index]
                for name, before in self.counts.items()
                if before[index + 1] > before[index]
            },
            origins=None if origins is None else Origins(*(part[index : index + 1] for part in origins)),
            given=given,
            table=self.table,
            at=self.at + max(start, 0),
        )

    def tell(self, tally: Tally, stop: int, start: int) -> None:
        """Add to ``tally`` what lies before sample ``stop``, but for what lay before sample ``start``."""
        for name, before in self.counts.items():
            more = int(before[stop]) - (int(before[start]) if start else 0)
            setattr(tally, name, getattr(tally, name) + more)

    def behind(self, samples: int, offset: int) -> Run:
        """Return the run without its first ``samples`` samples and ``offset`` tokens of the next."""
        begin, origins = int(self.offsets[samples]), self.origins
        return replace(
            self,
            ids=self.ids[begin + offset :],
            offsets=self.offsets[samples:] - begin - offset,
            counted=offset > 0,
            flags=None if self.flags is None else self.flags[begin + offset :],
            values=None if self.values is None else self.values[samples:],
            counts={name: before[samples:] - before[samples] for name, before in self.counts.items()},
            origins=None if origins is None else Origins(*(part[samples:] for part in origins)),
            at=self.at + begin + offset,
        )


def runs(
    reader: WindowReader, sampler: Sampler, state: SourceState, *, source: int, lane: int, offset: int
) -> Iterator[Run]:
    """Yield the source's runs from ``state`` on, ``offset`` tokens into its next sample.

    Raises :class:`ReplayError` where the window that the state stands in no longer has the texts that it had,
    :class:`EmptyStreamError` where a whole epoch that repeats holds documents, and not one token in them.
    """
    replayed = state.digest == ""
    silence = _Silence(reader, state)
    for window in reader.windows(state.place):
        resumed = not replayed
        if resumed and (window.begin, window.digest) != (state.place, state.digest):
            raise reader.changed(state.place)
        replayed = True
        silence.enter(window)
        entered = None if resumed else window.tally
        first = state.document if resumed else 0
        for sampled in sampler.samples(window, first, lane):
            run = _run(source, window, sampled, entered)
            if window.records is not None:
                run.table = _table(window.records, sampled, batched=sampler.batched)
            if resumed and sampled.first == first and (state.sample or offset):
                run = run.behind(state.sample, offset)
            entered = None
            silence.hear(run)
            yield run
        if first >= len(window.texts):
            nothing = np.zeros(1, dtype=np.int64)
            yield Run(source, np.empty(0, dtype=np.int32), nothing, window, len(window.texts), 0, entered)
    if not replayed:
        raise reader.changed(state.place)


def _run(source: int, window: Window, sampled: Sampled, entered: Tally | None) -> Run:
    samples = sampled.samples
    return Run(
        source=source,
        ids=samples.ids,
        offsets=samples.offsets,
        window=window,
        first=sampled.first,
        documents=sampled.documents,
        entered=entered,
        flags=samples.flags,
        values=samples.values,
        counts=sampled.counts,
        origins=sampled.origins,
    )


def _table(records: NDArray[np.int64], sampled: Sampled, *, batched: bool) -> Table:
    own = records[sampled.first : sampled.first + sampled.documents]
    return Table.of(sampled.samples.offsets, own, sampled.origins, batched=batched)


class _Silence:
    """Notices an epoch that repeats with documents and without a token: a lane would read it for ever."""

    def __init__(self, reader: WindowReader, state: SourceState) -> None:
        self._reader = reader
        self._epoch = state.place.epoch
        self._documents = 0
        self._dropped = Tally()
        self._heard = state.tokens > 0

    def enter(self, window: Window) -> None:
        """Look back on the epoch that ends where ``window`` begins another."""
        if window.begin.epoch != self._epoch:
            if self._documents and not self._heard and self._reader.repeats:
                raise self._reader.without_tokens(self._epoch, self._documents, self._dropped)
            self._epoch, self._documents, self._heard = window.begin.epoch, 0, False
            self._dropped = Tally()
        self._documents += len(window.texts)

    def hear(self, run: Run) -> None:
        """Note the tokens of a run, and what was dropped of its documents."""
        self._heard = self._heard or len(run.ids) > 0
        if not self._heard:
            run.tell(self._dropped, -1, 0)
