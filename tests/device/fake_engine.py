"""An engine whose copies happen late: when they are waited for, or, one by one, when somebody asks whether they have.

So a slot that is filled again too early gives a batch with wrong contents, as it would on a device.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

import torch

from streamfeed.device.engine import Copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.loader.memory import Batch

GARBAGE = -7


class LateArrival:
    """The event behind a copy."""

    def __init__(self, engine: LateEngine, source: dict[str, torch.Tensor], target: Batch) -> None:
        self.engine, self.source, self.target = engine, source, target
        self.passed = False

    def query(self) -> bool:
        if not self.passed and self.engine.moves():
            self.engine.advance()
        return self.passed

    def synchronize(self) -> None:
        self.engine.waited += 1
        while not self.passed:
            self.engine.advance()

    def happen(self) -> None:
        """Read the host's memory now, as it is now."""
        for name, memory in self.source.items():
            column = self.target[name]
            column.copy_(memory.view(column.dtype).view(column.shape))
        self.source = {}
        self.passed = True


class LateEngine:
    """``chance`` (0 to 1): how often a copy has arrived when that is asked. 0: never before it is waited for."""

    def __init__(self, chance: float = 0.0, seed: int = 0) -> None:
        self.chance, self.random = chance, random.Random(seed)
        self.queue: deque[LateArrival] = deque()
        self.allocated: list[torch.Tensor] = []
        self.staged = 0  # bytes
        self.begun = self.handed_over = self.waited = self.settled = 0
        self.fail_at: Sequence[int] = ()

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made = torch.empty(shape, dtype=dtype)
        self.allocated.append(made)
        if dtype == torch.uint8:
            self.staged += made.nbytes
        return made

    def is_pinned(self, column: torch.Tensor) -> bool:
        return self.bytes_of(column) is not None

    def bytes_of(self, column: torch.Tensor) -> torch.Tensor | None:
        """Return the memory of ``column``, which it does not keep: a copy engine knows an address, and no owner."""
        for piece in self.allocated:
            begin = column.data_ptr() - piece.data_ptr()
            if 0 <= begin < piece.nbytes:
                assert column.is_contiguous()
                return piece.view(-1).view(torch.uint8)[begin : begin + column.nbytes]
        return None

    def copy(self, batch: Batch) -> Copy:
        self.begun += 1
        if self.begun in self.fail_at:
            raise MemoryError("out of memory on the device")
        source = {name: memory for name, column in batch.items() if (memory := self.bytes_of(column)) is not None}
        assert source.keys() == batch.keys(), "it would be a blocking copy"
        target = {name: torch.full_like(column, GARBAGE) for name, column in batch.items()}
        arrival = LateArrival(self, source, target)
        self.queue.append(arrival)
        return Copy(target, arrival)

    def hand_over(self, copy: Copy) -> None:
        self.handed_over += 1  # the device waits; the host, which goes on, may see garbage

    def settle(self) -> None:
        self.settled += 1
        while self.queue:
            self.advance()

    def moves(self) -> bool:
        return self.random.random() < self.chance

    def advance(self) -> None:
        self.queue.popleft().happen()
