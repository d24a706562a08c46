"""A remote shard as a file: reads what is asked for, and ahead in what is expected."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from streamfeed.stages import Stages
from streamfeed.storage.fetch import LARGEST, SMALLEST, Block, Fetcher
from streamfeed.storage.raw import SizedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

__all__ = ["RemoteFile"]

_AHEAD = 4
"""Blocks ahead of the reader; they are what hides the time that a request takes."""


class RemoteFile(SizedFile):
    """A file of ``size`` bytes; ``load(start, stop)`` returns a range of it, or raises.

    Expected ranges are fetched in blocks that double from 256 kB to 16 MB, a few of them ahead, each within this file's
    share of the fetcher's budget. Any other read is one request for just its bytes (or several, above 16 MB).
    ``stages`` are those of the thread that reads.
    """

    def __init__(
        self, size: int, load: Callable[[int, int], bytes], fetcher: Fetcher, stages: Stages | None = None
    ) -> None:
        super().__init__(size)
        self._load = load
        self._reading = (stages or Stages()).read
        self._fetcher = fetcher
        self._expected: deque[tuple[int, int]] = deque()
        self._blocks: deque[Block] = deque()  # in the order of the expected ranges, none missing between two
        self._step = SMALLEST
        fetcher.opened(1)

    def expect(self, start: int, stop: int) -> None:
        """Fetch ``[start, stop)`` ahead, behind what is expected already."""
        wanted = (max(start, 0), min(stop, self._size))
        if wanted[0] < wanted[1] and wanted not in self._expected:
            self._expected.append(wanted)
            self._read_ahead()

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill ``buffer`` from the current position; returns the bytes read, fewer only at the end of the file."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._position))
        self._fill(view[:count], self._position)
        self._position += count
        return count

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes at ``offset``, fewer only at the end of the file; the position does not matter."""
        data = bytearray(max(0, min(size, self._size - offset)))
        self._fill(memoryview(data), offset)
        return bytes(data)

    def close(self) -> None:
        """Drop what was read ahead; safe to call twice."""
        if not self.closed:
            self._forget()
            self._expected.clear()
            self._fetcher.opened(-1)
        super().close()

    def _fill(self, view: memoryview, at: int) -> None:
        while view:
            if self._enter(at):
                block = self._blocks[0]
                self._read_ahead()
                with self._reading.starved:
                    data = block.get()
                begin = at - block.start
                part = memoryview(data)[begin : begin + len(view)]
            else:
                with self._reading.starved:
                    part = memoryview(self._load(at, min(at + len(view), at + LARGEST)))
            self._reading.count(1, len(part))
            view[: len(part)] = part
            view = view[len(part) :]
            at += len(part)

    def _enter(self, at: int) -> bool:
        """Make the first block the one that holds byte ``at``; False where that is in no expected range."""
        if not any(start <= at < stop for start, stop in self._expected):
            return False
        while not self._expected[0][0] <= at < self._expected[0][1]:
            self._expected.popleft()
        while self._blocks and not self._blocks[0].start <= at < self._blocks[0].stop:
            self._drop_first()
        if not self._blocks:
            self._append(at, must=True)
        return True

    def _read_ahead(self) -> None:
        held = sum(block.stop - block.start for block in self._blocks)
        while len(self._blocks) <= _AHEAD and held < self._fetcher.share:
            at = self._next()
            if at < 0 or not self._append(at, must=False):
                return
            block = self._blocks[-1]
            held += block.stop - block.start
            self._fetcher.submit(block)

    def _next(self) -> int:
        """Return the byte where the next block begins, -1 for none."""
        if not self._blocks:
            return self._expected[0][0] if self._expected else -1
        reached = self._blocks[-1].stop
        for index, (start, stop) in enumerate(self._expected):
            if start < reached <= stop:
                if reached < stop:
                    return reached
                return self._expected[index + 1][0] if index + 1 < len(self._expected) else -1
        return -1

    def _append(self, at: int, *, must: bool) -> bool:
        """Add a block from ``at`` on, no longer than its range and a quarter of the file's share; False without one."""
        limit = max(SMALLEST, min(LARGEST, self._fetcher.share // _AHEAD))
        last = next(stop for start, stop in self._expected if start <= at < stop)
        stop = min(last, at + min(self._step, limit))
        if not self._fetcher.reserve(stop - at, must=must):
            return False
        self._blocks.append(Block(at, stop, self._load, self._fetcher.release))
        self._step = min(self._step * 2, LARGEST)
        return True

    def _drop_first(self) -> None:
        self._blocks.popleft().drop()
        if not self._blocks:
            self._step = SMALLEST  # a jump: what follows may be short

    def _forget(self) -> None:
        while self._blocks:
            self._drop_first()
