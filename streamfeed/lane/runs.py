"""Runs: consecutive documents of one source, encoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streamfeed.encode.protocol import Engine
    from streamfeed.lane.state import SourceState
    from streamfeed.lane.windows import Window, WindowReader
    from streamfeed.stats import Tally

__all__ = ["Run", "runs"]

SLICE_BYTES = 512 << 10
"""Texts are encoded about this much at a time. The engine alone is as fast with half of it, but every run also costs a
hand-over between threads and a state; with twice as much, its scratch and the runs that wait take 40 MB more."""


@dataclass(slots=True)
class Run:
    """Documents ``first`` to ``first + len(offsets) - 2`` of ``window`` of source ``source``.

    Document ``i`` of the run is ``ids[offsets[i]:offsets[i + 1]]``. Where its first tokens are in earlier rows already,
    ``offsets[0]`` is that number, negative. ``entered`` is what the window's tally adds when this run is taken (the
    first of its window), ``counted`` says that the first document's tokens were counted before a resume.
    """

    source: int
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    window: Window
    first: int
    entered: Tally | None
    counted: bool = False
    empties: NDArray[np.int64] | None = field(default=None)
    """int64 ``[documents + 1]``: how many documents before each have no tokens; None where none has."""


def runs(reader: WindowReader, engine: Engine, state: SourceState, *, source: int, offset: int) -> Iterator[Run]:
    """Yield the source's runs from ``state`` on, ``offset`` tokens into its next document.

    Raises :class:`ReplayError` where the window that the state stands in no longer has the texts that it had,
    :class:`EmptyStreamError` where a whole epoch that repeats holds documents, and not one token in them.
    """
    skip, counted, replayed = state.document, offset > 0, state.digest == ""
    silence = _Silence(reader, state)
    for window in reader.windows(state.place):
        resumed = not replayed
        if resumed and (window.begin, window.digest) != (state.place, state.digest):
            raise _changed(source, state)
        replayed = True
        silence.enter(window)
        entered = None if resumed else window.tally
        first = skip if resumed else 0
        for start, texts in window.texts.drain(first, SLICE_BYTES):
            encoded = engine.encode(texts)
            run = Run(source, encoded.ids, encoded.offsets, window, start, entered, empties=_empties(encoded.offsets))
            if counted and start == first and resumed:
                run = _behind(run, offset)
            entered = None
            silence.hear(len(run.ids))
            yield run
        if first >= len(window.texts):
            nothing = np.zeros(1, dtype=np.int64)
            yield Run(source, np.empty(0, dtype=np.int32), nothing, window, len(window.texts), entered)
    if not replayed:
        raise _changed(source, state)


def _changed(source: int, state: SourceState) -> ReplayError:
    place = state.place
    return ReplayError(
        f"source {source}: the documents read again from unit {place.unit} of epoch {place.epoch}, record "
        f"{place.record} are not those that were read before the checkpoint; the shards changed"
    )


class _Silence:
    """Notices an epoch that repeats with documents and without a token: a lane would read it for ever."""

    def __init__(self, reader: WindowReader, state: SourceState) -> None:
        self._reader = reader
        self._epoch = state.place.epoch
        self._documents = 0
        self._heard = state.tokens > 0

    def enter(self, window: Window) -> None:
        """Look back on the epoch that ends where ``window`` begins another."""
        if window.begin.epoch != self._epoch:
            if self._documents and not self._heard and self._reader.repeats:
                raise self._reader.without_tokens(self._epoch, self._documents)
            self._epoch, self._documents, self._heard = window.begin.epoch, 0, False
        self._documents += len(window.texts)

    def hear(self, tokens: int) -> None:
        """Note the tokens of a run."""
        self._heard = self._heard or tokens > 0


def _empties(offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
    empty = np.diff(offsets) == 0
    if not empty.any():
        return None
    return np.concatenate(([0], np.cumsum(empty))).astype(np.int64, copy=False)


def _behind(run: Run, offset: int) -> Run:
    """Return ``run`` without the first ``offset`` tokens of its first document."""
    run.ids = run.ids[offset:]
    run.offsets = run.offsets - offset
    run.counted = True
    return run
