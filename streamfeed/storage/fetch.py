"""Fetching ahead: a few threads and one budget of bytes for all remote files of a process."""

from __future__ import annotations

import threading
import weakref
from enum import Enum
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BUDGET", "LARGEST", "SMALLEST", "THREADS", "Block", "Fetcher"]

BUDGET = 64 << 20
"""Bytes that all files of a process may hold read ahead."""

THREADS = 8
"""Requests of a process that run ahead at a time; a reader that waits makes its own."""

SMALLEST = 256 << 10
LARGEST = 16 << 20
"""Bytes of a request: the first of a range that is read in order, and what the later ones grow to."""


class _State(Enum):
    QUEUED = 0
    RUNNING = 1
    DONE = 2
    DROPPED = 3


class Block:
    """The bytes ``[start, stop)`` of a file, fetched by a thread or by the reader that needs them: who comes first."""

    def __init__(
        self, start: int, stop: int, load: Callable[[int, int], bytes], release: Callable[[int], None]
    ) -> None:
        self.start = start
        self.stop = stop
        self._load = load
        self._release = release
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._state = _State.QUEUED
        self._data = b""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Fetch the bytes, unless that is done, or being done, or no longer wanted."""
        with self._lock:
            if self._state is not _State.QUEUED:
                return
            self._state = _State.RUNNING
        try:
            data, error = self._load(self.start, self.stop), None
        except BaseException as raised:  # noqa: BLE001 - raised again where the bytes are asked for
            data, error = b"", raised
        with self._lock:
            wanted = self._state is _State.RUNNING
            if wanted:
                self._state, self._data, self._error = _State.DONE, data, error
        if not wanted:
            self._release(self.stop - self.start)
        self._settled.set()

    def get(self) -> bytes:
        """Return the bytes, fetching them or waiting for who does. Raises what fetching raised."""
        self.run()
        self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._data

    def drop(self) -> None:
        """Say that the bytes are not needed (any more): their share of the budget is free when nobody fetches them."""
        with self._lock:
            before, self._state = self._state, _State.DROPPED
            self._data = b""
        if before in {_State.QUEUED, _State.DONE}:
            self._release(self.stop - self.start)


class Fetcher:
    """The budget and the threads of one process. Threads start with the first block, and end with this object."""

    def __init__(self, budget: int = BUDGET, threads: int = THREADS) -> None:
        self._budget = budget
        self._threads = threads
        self._lock = threading.Lock()
        self._held = 0
        self._files = 0
        self._started = 0
        self._queue: SimpleQueue[Block | None] = SimpleQueue()
        self._end = weakref.finalize(self, _end, self._queue, threads)
        self._end.atexit = False  # the threads are daemons

    @property
    def held(self) -> int:
        """Bytes held or being fetched, those included that a reader waits for."""
        return self._held

    @property
    def share(self) -> int:
        """Bytes that one file may hold ahead now: an even part of the budget."""
        return self._budget // max(1, self._files)

    def opened(self, files: int) -> None:
        """Note that so many files were opened (or, negative, closed)."""
        with self._lock:
            self._files += files

    def reserve(self, size: int, *, must: bool = False) -> bool:
        """Take ``size`` bytes of the budget; False where they are not left, unless it ``must`` be."""
        with self._lock:
            if not must and self._held + size > self._budget:
                return False
            self._held += size
            return True

    def release(self, size: int) -> None:
        """Give ``size`` bytes back."""
        with self._lock:
            self._held -= size

    def submit(self, block: Block) -> None:
        """Have ``block`` fetched by a thread, in the order of submission."""
        with self._lock:
            if self._started < self._threads:
                self._started += 1
                name = f"fetch-{self._started}"
                threading.Thread(target=_work, args=(self._queue,), name=name, daemon=True).start()
        self._queue.put(block)


def _work(queue: SimpleQueue[Block | None]) -> None:
    while (block := queue.get()) is not None:
        block.run()
        del block  # what it holds must not wait for the next one


def _end(queue: SimpleQueue[Block | None], threads: int) -> None:
    for _ in range(threads):
        queue.put(None)
