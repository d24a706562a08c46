"""Where the loader stood behind its last batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from streamfeed.errors import StateError

if TYPE_CHECKING:
    from streamfeed.dataset.state import StreamState

__all__ = ["KEPT_STATES", "History", "Mark"]

KEPT_STATES = 256
"""States of this many last batches can be asked for: trainers look ahead by up to a whole accumulation."""


class Mark(NamedTuple):
    """Behind batch ``number``, which is the ``batches``-th since the workers last started, at ``base``.

    ``parts`` are the workers' lanes as JSON, at or before this: cheap to keep, nothing is parsed until it is asked for.
    """

    number: int
    base: StreamState
    batches: int = 0
    parts: tuple[bytes, ...] = ()
    ended: bool = False

    def state(self, rows_a_batch: int) -> dict[str, Any]:
        """Return the state as plain JSON; ``rows_a_batch`` are those of all ranks."""
        state = self.base.to_json()
        if self.parts:
            lanes: dict[str, Any] = {}
            for part in self.parts:
                lanes.update(orjson.loads(part))
            state |= {"rows": self.base.rows + self.batches * rows_a_batch, "ended": self.ended, "lanes": lanes}
        return state


@dataclass
class History:
    """The marks behind the last batches; ``now`` is the newest. Batches are numbered from ``base`` on."""

    base: StreamState
    most: int = KEPT_STATES
    now: Mark = field(init=False)
    _kept: deque[Mark] = field(init=False)

    def __post_init__(self) -> None:
        self.now = Mark(0, self.base)
        self._kept = deque([self.now], maxlen=self.most + 1)

    def restart(self, base: StreamState) -> None:
        """Note that workers will start again at ``base``; earlier batches can still be asked for."""
        self.now = Mark(self.now.number, base)

    def batch(self, parts: tuple[bytes, ...]) -> None:
        """Note a batch."""
        self.now = Mark(self.now.number + 1, self.now.base, self.now.batches + 1, parts)
        self._kept.append(self.now)

    def end(self, parts: tuple[bytes, ...]) -> None:
        """Note the end of the pass."""
        self.now = self.now._replace(parts=parts, ended=True)

    def find(self, number: int) -> Mark:
        """Return the mark behind batch ``number``. Raises :class:`StateError` where there is none."""
        for mark in reversed(self._kept):
            if mark.number == number:
                return mark
        raise StateError(
            f"there is no state of batch {number}: {self.now.number} were handed out, the last {self.most} are kept "
            "(kept_states)"
        )
