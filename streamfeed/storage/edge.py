"""The edge to remote stores: every request goes through here, with its retries, its counts and its errors."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from streamfeed.errors import ReadError
from streamfeed.storage.client import Clients, Entry, Limits, Port, Progress
from streamfeed.storage.faults import Kind, ShortReadError
from streamfeed.storage.files import changed
from streamfeed.storage.remote import RemoteFile
from streamfeed.storage.retry import GaveUpError, Retrier
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfeed.stats import ReadStats
    from streamfeed.storage.fetch import Fetcher
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["RemoteEdge"]

T = TypeVar("T")

_CHANGED_ADVICE = "restore the shard, or start a new run on the new list"
_ADVICE = "nothing was skipped: the run can be resumed when the store answers again"


class RemoteEdge:
    """The remote shards of one source, whose storage ``options`` may hold secrets. Safe to use from several threads."""

    def __init__(self, options: Mapping[str, Any], stats: ReadStats, fetcher: Fetcher, retrier: Retrier) -> None:
        self.options = options
        self._clients = Clients(options)
        self._stats = stats
        self._fetcher = fetcher
        self._retrier = retrier
        self._limits = Limits(retrier.policy.stall_s)
        self._lock = threading.Lock()

    def ask(self, url: str, question: Callable[[Port, str, Limits], T]) -> T:
        """Return the port's answer about ``url``; raises :class:`GaveUpError`."""
        made = 0

        def attempt() -> T:
            nonlocal made
            client, path = self._clients.of(url)
            port, made = client.port()
            return question(port, path, self._limits)

        def renew() -> None:
            self._clients.of(url)[0].renew(made)

        return self._retrier.call(attempt, redact(url), renew)

    def info(self, url: str) -> Entry:
        """Return size and version of the file, or the folder, at ``url``; raises :class:`GaveUpError`."""
        return self.ask(url, lambda port, path, limits: port.info(path, limits))

    def open(self, file: ShardFile) -> RawFile:
        """Open ``file``; raises :class:`ReadError` where it is gone, or another than planned.

        A store that checks every read is asked nothing yet.
        """
        self._count(opens=1)
        with self._stats.stages.read.starved:
            if not self._conditional(file):
                self._compare(file)

        def load(start: int, stop: int) -> bytes:
            return self._load(file, start, stop)

        return RemoteFile(file.size, load, self._fetcher, self._stats.stages)

    def confirm(self, file: ShardFile) -> None:
        """Raise :class:`ReadError` where ``file`` is gone, or another than planned, and its reads did not show it."""
        with self._stats.stages.read.starved:
            if not self._conditional(file):
                self._compare(file)

    def _conditional(self, file: ShardFile) -> bool:
        """Return whether each read of ``file`` is checked against its version."""
        if not file.version:
            return False
        try:
            return self.ask(file.url, lambda port, _, __: port.conditional)
        except GaveUpError as gave:
            failure = self._error(file, "", gave)
        raise failure

    def _load(self, file: ShardFile, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)``; every attempt goes on where the one before was cut off."""
        known = Entry("", file.size, file.version)
        parts: list[bytes] = []
        reached = start

        def attempt(port: Port, path: str, limits: Limits) -> None:
            nonlocal reached
            progress = Progress()
            begin = perf_counter_ns()
            try:
                port.read(path, reached, stop, known, progress, limits)
            finally:
                arrived = list(progress.parts)  # what a cancelled read still adds is not taken
                size = sum(map(len, arrived))
                parts.extend(arrived)
                reached += size
                self._count(reads=1, size=size, spent_ns=perf_counter_ns() - begin)
            if reached < stop:
                raise ShortReadError

        try:
            self.ask(file.url, attempt)
        except GaveUpError as gave:
            failure = self._error(file, f"byte {reached}", gave)
        else:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        raise failure

    def _error(self, file: ShardFile, where: str, gave: GaveUpError) -> ReadError:
        kind = gave.fault.kind
        if kind is Kind.MISSING:
            cause = f"was listed with {file.size:,} bytes and is gone now ({gave.fault.text})"
            return ReadError(file.shard, "", cause, _CHANGED_ADVICE)
        if kind in {Kind.CHANGED, Kind.SHORT}:
            try:
                self._compare(file)
            except ReadError as found:
                return found
        if kind is Kind.CHANGED:
            cause = f"was listed as version {file.version}, and the store says that it has changed ({gave.fault.text})"
            return ReadError(file.shard, where, cause, _CHANGED_ADVICE)
        advice = "check the source's credentials" if kind in {Kind.REFUSED, Kind.EXPIRED} else _ADVICE
        return ReadError(file.shard, where, f"the store failed: {gave}", advice)

    def _compare(self, file: ShardFile) -> None:
        """Raise where what is at the URL is not what was listed."""
        try:
            found = self.info(file.url)
        except GaveUpError as gave:
            failure = self._error(file, "", gave)
        else:
            same = not file.version or not found.version or file.version == found.version
            if found.size == file.size and same and not found.folder:
                return
            failure = changed(file.shard, (file.size, file.version), (found.size, found.version))
        raise failure

    def _count(self, *, opens: int = 0, reads: int = 0, size: int = 0, spent_ns: int = 0) -> None:
        with self._lock:
            self._stats.opens += opens
            self._stats.reads += reads
            self._stats.bytes += size
            if reads:
                self._stats.stages.fetch.count(reads, size)
                self._stats.stages.fetch.busy.ns += spent_ns
