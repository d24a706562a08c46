"""From the documents of a window to samples: the user's function, then the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import orjson

from streamfeed.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.objectives.protocol import Objective, Samples, TextObjective
    from streamfeed.lane.mapping import Mapped, Mapper, Origins
    from streamfeed.lane.windows import Window

__all__ = ["Sampled", "Sampler"]

T = TypeVar("T")

SLICE_BYTES = 496 << 10
"""Texts are encoded about this much at a time; four slices fill a huge page (``lane/pages.py``). The engine alone is as
fast with half of it, but every run also costs a hand-over between threads and a state; with twice as much, its scratch
and the runs that wait take 40 MB more."""


class Sampled(NamedTuple):
    """The samples of documents ``first`` to ``first + documents - 1`` of a window.

    ``counts``: by name of a :class:`~streamfeed.stats.Tally` field, int64 ``[samples + 1]``, how much belongs to what
    lies before each sample. ``origins``: None where every document is one sample.
    """

    first: int
    documents: int
    samples: Samples
    counts: Mapping[str, NDArray[np.int64]]
    origins: Origins | None


class Sampler:
    """Samples of one source. ``longest``: samples of more tokens will be cut, which is counted; 0: none.

    ``stages`` are those of the thread that takes the samples.
    """

    def __init__(
        self,
        objective: Objective | None,
        texts: TextObjective | None = None,
        *,
        mapper: Mapper | None = None,
        longest: int = 0,
        stages: Stages | None = None,
    ) -> None:
        self._stages = stages or Stages()
        self._objective = objective
        self._texts = texts
        self._mapper = mapper
        self._longest = longest

    @property
    def batched(self) -> bool:
        """Whether samples are made of many documents at once."""
        return self._mapper is not None and self._mapper.slice is not None

    def samples(self, window: Window, first: int, lane: int) -> Iterator[Sampled]:
        """Yield the samples of ``window`` from document ``first`` on, a slice at a time."""
        count = None if self._mapper is None else self._mapper.slice
        slices = window.texts.drain(first, SLICE_BYTES, count)
        while True:
            with self._stages.shuffle.busy:
                start, texts = next(slices, (0, None))
            if texts is None:
                return
            mapped = None
            if self._texts is not None:
                samples = self._encode(self._texts.encode_texts, texts)
            else:
                mapped, samples = self._of_records(window, start, texts, lane)
            with self._stages.encode.busy:
                counts = self._counts(samples, mapped)
            documents = len(texts)
            del texts  # not to be held until the next are asked for
            yield Sampled(start, documents, samples, counts, None if mapped is None else mapped.origins)

    def _of_records(self, window: Window, start: int, texts: list[str], lane: int) -> tuple[Mapped | None, Samples]:
        assert self._objective is not None
        with self._stages.decode.busy:
            records = [orjson.loads(text) for text in texts]
        if self._mapper is None:
            return None, self._encode(self._objective.encode, records)
        with self._stages.map.busy:
            mapped = self._mapper.run(records, start, window.begin, lane)
        self._stages.map.count(len(records))
        return mapped, self._encode(self._objective.encode, mapped.records)

    def _encode(self, encode: Callable[[Sequence[T]], Samples], samples: Sequence[T]) -> Samples:
        with self._stages.encode.busy:
            encoded = encode(samples)
        self._stages.encode.count(len(samples), 4 * len(encoded.ids))
        return encoded

    def _counts(self, samples: Samples, mapped: Mapped | None) -> dict[str, NDArray[np.int64]]:
        found: dict[str, NDArray[np.int64] | None] = {name: _before(some) for name, some in samples.counts.items()}
        lengths = np.diff(samples.offsets)
        empty = lengths == 0
        if empty.any():
            if "skipped" in samples.counts:
                empty = empty & (samples.counts["skipped"] == 0)
            found["empty"] = _before(empty)
        if self._longest and len(lengths) and int(lengths.max()) > self._longest:
            found["cut"] = _before(lengths > self._longest)
        if mapped is not None and mapped.dropped[-1]:
            found["mapped_out"] = mapped.dropped
        return {name: some for name, some in found.items() if some is not None}


def _before(counts: Sequence[int] | NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return the sums before each of ``counts``, and of all; None where there is nothing."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums if sums[-1] else None
