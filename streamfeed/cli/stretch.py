"""What one rank reads of a stream from a state on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from streamfeed.cli.rows import rows_of
from streamfeed.loader.loader import StreamLoader

if TYPE_CHECKING:
    from streamfeed.cli.rows import Row
    from streamfeed.config import StreamConfig
    from streamfeed.loader.provenance import TracedBatch
    from streamfeed.plan.plan import Plan

__all__ = ["Stretch", "Told"]


class Told(NamedTuple):
    """Rows that were handed out, by number, and the state behind them."""

    rows: dict[int, Row]
    state: dict[str, Any]


@dataclass(frozen=True)
class Stretch:
    """``batches`` batches of ``size`` rows on rank ``rank`` of ``ranks``, from ``state`` on (None: the beginning).

    ``plan`` is another loader's, if there is one already.
    """

    config: StreamConfig
    size: int
    multiple: int | None
    batches: int = 0
    rank: int = 0
    ranks: int = 1
    workers: int = 0
    plan: Plan | None = None
    state: dict[str, Any] | None = None

    def loader(self) -> StreamLoader:
        """Return a loader that stands where the stretch begins."""
        padding: dict[str, Any] = {} if self.multiple is None else {"pad_to_multiple_of": self.multiple}
        loader = StreamLoader(
            self.config,
            self.size,
            num_workers=self.workers,
            rank=self.rank,
            world_size=self.ranks,
            plan=self.plan,
            provenance=True,
            **padding,
        )
        if self.state is not None:
            loader.load_state_dict(self.state)
        return loader

    def read(self) -> Told:
        """Read it in this process."""
        with self.loader() as loader:
            rows: dict[int, Row] = {}
            for batch in islice(loader, self.batches):
                rows |= rows_of(cast("TracedBatch", batch))
            return Told(rows, loader.state_dict())
