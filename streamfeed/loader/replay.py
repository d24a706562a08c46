"""Rows of a stream made again, from any state before them: only the lanes that they are of, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streamfeed.dataset.message import Buffers
from streamfeed.dataset.origins import Ledgers
from streamfeed.dataset.share import Share
from streamfeed.errors import StateError
from streamfeed.loader.job import Job
from streamfeed.loader.provenance import Piece, named
from streamfeed.stats import ReadStats

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streamfeed.dataset.state import StreamState
    from streamfeed.loader.loader import StreamLoader

__all__ = ["Replayed", "replay"]


class Replayed(NamedTuple):
    """Row ``number`` of a pass: ids, int32 ``[tokens]``, and pieces; none where its lane, ``lane``, has ended."""

    number: int
    lane: int
    ids: NDArray[np.int32]
    pieces: tuple[Piece, ...]


def replay(loader: StreamLoader, state: StreamState, first: int, stop: int) -> Iterator[Replayed]:
    """Yield rows ``first`` to ``stop - 1`` of the pass of ``state``, fewer where it ends.

    ``loader`` gives plan, tokenizer and engine; where it stands does not matter. Raises :class:`StateError` where
    ``state`` is of another stream, or behind ``first``, and what readers raise.
    """
    plan = loader.plan
    state.check(plan.fingerprint)
    if first < state.rows:
        raise StateError(f"row {first:,} lies before the state, which is of row {state.rows:,}")
    if state.ended or stop <= first:
        return
    lanes = plan.lanes
    slots = sorted({row % lanes for row in range(first, min(stop, first + lanes))})
    job = Job(
        plan=plan,
        objective=loader.config.objective,
        tokenizer=loader.tokenizer,
        verdict=loader.verdict,
        cache_dir=None,
        share=Share(lanes, 0, 1),
        worker=0,
        workers=1,
        states=state.lane_states(len(plan.sources)),
        first=first,
        first_epoch=state.first_epoch,
        only=slots,
        provenance=True,
    )
    host, ledgers = job.host(ReadStats(), None), Ledgers()
    buffers = Buffers.private(len(slots), job.layout)
    number, turn = first, slots.index(first % lanes)
    while number < stop:
        message = host.message(1, buffers)
        if not len(message.ids):
            return
        assert message.told is not None
        origins = ledgers.read(message.told)
        for row, length in enumerate(message.lengths.tolist()):
            if number < stop:
                yield Replayed(
                    number, number % lanes, message.ids[row, :length].copy(), named(plan, origins.pieces(row))
                )
            turn = (turn + 1) % len(slots)
            number += (slots[turn] - number) % lanes or lanes
