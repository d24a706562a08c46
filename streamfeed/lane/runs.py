"""Runs: consecutive documents of one source, encoded, with their special tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.encode.protocol import Encoded, Engine
from streamfeed.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.state import SourceState
    from streamfeed.lane.windows import Window, WindowReader
    from streamfeed.stats import Tally

__all__ = ["Frame", "Run", "runs"]

SLICE_CHARACTERS = 256 << 10
"""Texts are encoded about this much at a time: enough to amortise the call, little enough to be early."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens around a document: ``bos`` (or none) before it, ``eos`` behind it."""

    bos: int | None
    eos: int

    def around(self, encoded: Encoded) -> Encoded:
        """Return ``encoded`` with the special tokens; documents without tokens stay without."""
        offsets = encoded.offsets
        lengths = np.diff(offsets)
        extra = 1 if self.bos is None else 2
        framed = np.zeros_like(offsets)
        np.cumsum(np.where(lengths > 0, lengths + extra, 0), out=framed[1:])
        ids = np.full(int(framed[-1]), self.eos, dtype=np.int32)
        source, bounds = encoded.ids, offsets.tolist()
        for index, start in enumerate(framed[:-1].tolist()):
            begin, end = bounds[index], bounds[index + 1]
            if begin == end:
                continue
            if self.bos is not None:
                ids[start] = self.bos
                start += 1  # noqa: PLW2901
            ids[start : start + end - begin] = source[begin:end]
        return Encoded(ids, framed)


@dataclass(slots=True)
class Run:
    """Documents ``first`` to ``first + len(offsets) - 2`` of ``window`` of source ``source``.

    Document ``i`` of the run is ``ids[offsets[i]:offsets[i + 1]]``. Where its first tokens are in earlier rows already,
    ``offsets[0]`` is that number, negative. ``entered`` is what the window's tally adds when this run is taken (the first
    of its window), ``counted`` says that the first document's tokens were counted before a resume.
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


def runs(
    reader: WindowReader, engine: Engine, frame: Frame, state: SourceState, *, source: int, offset: int
) -> Iterator[Run]:
    """Yield the source's runs from ``state`` on, ``offset`` tokens into its next document.

    Raises :class:`ReplayError` where the window that the state stands in no longer has the texts that it had.
    """
    skip, counted = state.document, offset > 0
    for window in reader.windows(state.place):
        resumed = window.begin == state.place and state.digest != ""
        if resumed and window.digest != state.digest:
            raise ReplayError(
                f"source {source}: the documents read again from unit {state.place.unit} of epoch {state.place.epoch}, "
                f"record {state.place.record} are not those that were read before the checkpoint; the shards changed"
            )
        entered = None if resumed else window.tally
        first = skip if resumed else 0
        for start, stop in _slices(window.texts, first):
            encoded = frame.around(engine.encode(window.texts[start:stop]))
            run = Run(source, encoded.ids, encoded.offsets, window, start, entered, empties=_empties(encoded.offsets))
            if counted and start == first and resumed:
                run = _behind(run, offset)
            entered = None
            yield run
        if first >= len(window.texts):
            nothing = np.zeros(1, dtype=np.int64)
            yield Run(source, np.empty(0, dtype=np.int32), nothing, window, len(window.texts), entered)


def _slices(texts: Sequence[str], first: int) -> Iterator[tuple[int, int]]:
    """Yield ``(start, stop)`` of consecutive texts of about :data:`SLICE_CHARACTERS`, from ``first`` on."""
    start, size = first, 0
    for index in range(first, len(texts)):
        size += len(texts[index])
        if size >= SLICE_CHARACTERS:
            yield start, index + 1
            start, size = index + 1, 0
    if start < len(texts):
        yield start, len(texts)


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
