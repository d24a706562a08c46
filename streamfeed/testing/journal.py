"""A log of calls that several threads and processes write together, each knowing what the others have done."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Call", "FileJournal", "Journal", "MemoryJournal"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a store: ``[start, end)`` where it asked for a range, the process, the effects that it had."""

    op: str
    path: str
    start: int | None
    end: int | None
    pid: int
    effects: tuple[str, ...] = ()


class Journal(Protocol):
    """Where calls are noted."""

    def locked(self) -> AbstractContextManager[object]:
        """Return a context in which nobody else writes."""

    def news(self) -> list[Call]:
        """Return the calls noted since the last time this was asked; only inside :meth:`locked`."""

    def write(self, call: Call) -> None:
        """Note a call; only inside :meth:`locked`."""

    def calls(self) -> list[Call]:
        """Return all calls so far, in order."""


class MemoryJournal:
    """A journal of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._seen = 0

    def locked(self) -> AbstractContextManager[object]:
        """Return a context in which nobody else writes."""
        return self._lock

    def news(self) -> list[Call]:
        """Return the calls noted since the last time."""
        new = self._calls[self._seen :]
        self._seen = len(self._calls)
        return new

    def write(self, call: Call) -> None:
        """Note a call."""
        self._calls.append(call)

    def calls(self) -> list[Call]:
        """Return all calls so far."""
        with self._lock:
            return list(self._calls)


class FileJournal:
    """A journal in a file, one JSON line a call, for any number of processes of one machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = -1
        self._offset = 0
        Path(path).touch()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file: each use opens it anew, so that this excludes threads as well as processes."""
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._handle = handle
            yield
        finally:
            # Closing would not do: a process forked meanwhile holds the lock too until someone unlocks it.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def news(self) -> list[Call]:
        """Return the calls noted since the last time."""
        size = os.fstat(self._handle).st_size
        data = os.pread(self._handle, size - self._offset, self._offset)
        self._offset += len(data)
        return _parse(data)

    def write(self, call: Call) -> None:
        """Note a call."""
        os.write(self._handle, json.dumps(asdict(call)).encode() + b"\n")

    def calls(self) -> list[Call]:
        """Return all calls so far."""
        with self.locked():
            return _parse(Path(self.path).read_bytes())


def _parse(data: bytes) -> list[Call]:
    calls = [json.loads(line) for line in data.splitlines()]
    return [Call(**{**call, "effects": tuple(call["effects"])}) for call in calls]
