"""A user's own function, run on the records of a window before the objective."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamfeed.errors import MapError
from streamfeed.formats.protocol import Bad
from streamfeed.objectives import MAP_SLICE
from streamfeed.plan.order import order_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.formats.shape import Shape
    from streamfeed.lane.state import Place
    from streamfeed.objectives import Map

__all__ = ["Mapped", "Mapper", "Origins"]

Record = dict[str, Any]


class Origins(NamedTuple):
    """Where samples come from: sample ``i`` is the ``sample[i]``-th of those that began at document ``document[i]``.

    Both int64 ``[samples]``; documents are counted from the run's first.
    """

    document: NDArray[np.int64]
    sample: NDArray[np.int64]


class Mapped(NamedTuple):
    """What the function made of some documents, and what was dropped on the way.

    ``dropped``: int64 ``[records + 1]``, before each record: documents that gave nothing, and records with a null of
    what the objective takes. What a document dropped beside its records is counted behind the first of these: where a
    state points at that, the function is run again.
    """

    records: list[Mapping[str, Any]]
    origins: Origins
    dropped: NDArray[np.int64]


class Mapper:
    """Runs the function of source ``source``; what it returns must have the ``shape`` that the objective takes.

    Raises :class:`MapError` for whatever the function raises, and for what is no record.
    """

    def __init__(self, settings: Map, shape: Shape, seed: int, source: int) -> None:
        self._function = settings.function
        self._name = settings.name
        self._batched = settings.batched
        self._shape = shape
        self._key = ("map", seed, source)
        self._draws = _takes_two(settings.function)

    @property
    def slice(self) -> int | None:
        """How many documents the function gets at once, always the same of a window; None where it gets one."""
        return MAP_SLICE if self._batched else None

    def run(self, records: Sequence[Record], first: int, place: Place, lane: int) -> Mapped:
        """Run the function on documents ``first`` and following of the window at ``place`` of ``lane``."""
        window = (*self._key, place.epoch, lane, place.window)
        if self._batched:
            made, nulls = self._records(self._call(list(records), (*window, first)))
            return _mapped([made], [nulls + max(0, len(records) - len(made) - nulls)])
        found = [self._records(self._call(record, (*window, first + i))) for i, record in enumerate(records)]
        return _mapped([made for made, _ in found], [nulls if made or nulls else 1 for made, nulls in found])

    def _call(self, argument: object, key: tuple[str | int, ...]) -> object:
        try:
            if self._draws:
                return self._function(argument, np.random.Generator(np.random.Philox(key=order_key(*key))))
            return self._function(argument)
        except Exception as error:
            raise MapError(f"the map function {self._name} raised {type(error).__name__}: {error}") from error

    def _records(self, made: object) -> tuple[list[Mapping[str, Any]], int]:
        """Return what the function made as records that the objective takes; how many with a null are left out."""
        if made is None and not self._batched:
            return [], 0
        listed = made if isinstance(made, (list, tuple)) else None if self._batched else [made]
        if listed is None:
            raise MapError(f"the map function {self._name} is batched and returned {type(made).__name__}, not a list")
        picked = [self._shape.pick(record) for record in listed]
        for one in picked:
            if isinstance(one, Bad):
                raise MapError(f"the map function {self._name} returned what the objective cannot take: {one.cause}")
        kept: list[Mapping[str, Any]] = [one for one in picked if one is not None and not isinstance(one, Bad)]
        return kept, len(picked) - len(kept)


def _mapped(found: Sequence[list[Mapping[str, Any]]], lost: Sequence[int]) -> Mapped:
    """Return the records that each document gave, or each slice of them, and how many it ``lost``."""
    counts = np.asarray([len(made) for made in found], dtype=np.int64)
    document = np.repeat(np.arange(len(found), dtype=np.int64), counts)
    begins = np.cumsum(counts) - counts
    sample = np.arange(len(document), dtype=np.int64) - np.repeat(begins, counts)
    before = np.concatenate(([0], np.cumsum(lost))).astype(np.int64, copy=False)
    dropped = np.append(before[document + (sample > 0)], before[-1])
    return Mapped([record for made in found for record in made], Origins(document, sample), dropped)


def _takes_two(function: object) -> bool:
    """Say whether a function has a second argument without a default: the generator."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some of C's say nothing
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([one for one in parameters if one.kind in positional and one.default is one.empty]) >= 2
