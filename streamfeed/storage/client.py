"""The fsspec file system of a place, in this process: the only module that imports fsspec."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from streamfeed.storage.urls import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

__all__ = ["Client", "Clients", "Entry", "Limits", "Port", "Progress", "run_async", "run_sync"]

T = TypeVar("T")

SLOWEST = 1 << 20
"""Bytes a second that a request must bring where its progress cannot be seen."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of a store: its ``path`` in the store's own words, bytes, and version (empty: not known)."""

    path: str
    size: int
    version: str
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one request may take: ``stall_s`` without a byte."""

    stall_s: float

    def whole(self, size: int) -> float:
        """Return the seconds for ``size`` bytes whose arrival cannot be watched."""
        return self.stall_s + size / SLOWEST


class Progress:
    """What of a range has arrived, also when the rest does not."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.parts.append(data)
        self.size += len(data)


class Port(Protocol):
    """One library's way of asking: a single attempt each, the library's own exceptions, no retries.

    ``conditional``: every read is checked against the version that it is given.
    """

    conditional: bool

    def read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:
        """Read ``[start, stop)`` of ``path``, of which ``known`` was listed, adding bytes as they arrive."""

    def info(self, path: str, limits: Limits) -> Entry:
        """Return what is at ``path``."""

    def tree(self, path: str, stem: str, token: str, limits: Limits) -> tuple[list[Entry], str] | None:
        """Return files below folder ``path`` from one listing of all of them, and the token of the next part, if any.

        None where folders can only be listed one by one. Files whose rest of the path does not begin with ``stem`` may
        be left out.
        """

    def folder(self, path: str, limits: Limits) -> list[Entry]:
        """Return the files and folders right below folder ``path``; a missing one may be empty."""


def run_async(fs: Any, work: Coroutine[Any, Any, T], limit: float) -> T:  # noqa: ANN401
    """Run a coroutine on the file system's loop; cancel it after ``limit`` seconds, and raise :class:`TimeoutError`."""
    future = asyncio.run_coroutine_threadsafe(work, fs.loop)
    try:
        return future.result(limit)
    finally:
        future.cancel()  # does nothing to what is done


def run_sync(work: Callable[[], T], limit: float) -> T:
    """Run a blocking call on a thread; abandon it after ``limit`` seconds, and raise :class:`TimeoutError`."""
    answers: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="store-call", daemon=True).start()
    if not done.wait(limit):
        raise TimeoutError
    if errors:
        raise errors[0]
    return answers[0]


@dataclass(frozen=True, slots=True)
class _Live:
    fs: Any
    port: Port
    pid: int
    made: int


class Client:
    """The file system of one place; made when it is first used, again after a fork, and when a credential expired."""

    def __init__(self, place: Place, options: Mapping[str, Any]) -> None:
        self._place = place
        self._options = options
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._live: _Live | None = None
        self._made = 0
        self._foreign: list[_Live] = []  # of the process that this one was forked from, whose sockets are not ours

    def port(self) -> tuple[Port, int]:
        """Return the port, and how many there have been: for :meth:`renew`."""
        live = self._alive()
        return live.port, live.made

    def file_system(self) -> tuple[Any, int]:
        """Return the fsspec file system itself, for what no port does (writing), and how many there have been."""
        live = self._alive()
        return live.fs, live.made

    def _alive(self) -> _Live:
        if self._pid != os.getpid():  # the lock may have been held while this process was forked
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._live is not None and self._live.pid != os.getpid():
                self._foreign.append(self._live)  # closing it would close the other process' connections
                self._live = None
            if self._live is None:
                self._made += 1
                fs = _filesystem(self._place, self._options)
                self._live = _Live(fs, _port(fs), os.getpid(), self._made)
            return self._live

    def renew(self, made: int) -> None:
        """Make the next call use a new file system, with the credential that its library then finds.

        Does nothing where the one numbered ``made`` has been replaced already.
        """
        with self._lock:
            if self._live is not None and self._live.made == made:
                self._live = None


class Clients:
    """The clients of one source, by place: shards in the same place share one."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str, str], Client] = {}

    def of(self, url: str) -> tuple[Client, str]:
        """Return the client for ``url``, and the path that it knows the file by."""
        place = place_of(url)
        path, extra, chain = _address(place)
        key = (place.head if extra is None else "", repr(extra), chain)
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = Client(place, self._options)
        return client, path


def _address(place: Place) -> tuple[str, object, str]:
    """Return the path as the place's library wants it, what the URL says beside it, and what is chained behind."""
    from fsspec import get_filesystem_class

    scheme = place.head.rpartition("://")[0].rpartition("::")[2]
    if scheme.lower() in {"http", "https"}:
        return place.url.partition("::")[0], scheme, ""
    bit, chain, rest = place.url[len(place.head) - len(scheme) - 3 :].partition("::")
    cls = get_filesystem_class(scheme)
    path = cls._strip_protocol(bit)  # how fsspec itself takes URLs apart
    return path, (place.head, cls._get_kwargs_from_urls(bit)), chain + rest


def _filesystem(place: Place, options: Mapping[str, Any]) -> Any:  # noqa: ANN401
    from fsspec.core import url_to_fs

    kept = {name: dict(value) if isinstance(value, dict) else value for name, value in options.items()}
    schemes = [bit.partition("://")[0] for bit in place.url.split("::")]
    for scheme in schemes[1:]:
        inner = kept.get(scheme)
        kept[scheme] = {"skip_instance_cache": True, **(inner if isinstance(inner, dict) else {})}
    kept["skip_instance_cache"] = True
    if schemes[-1] in {"s3", "s3a"}:
        _one_attempt(kept if len(schemes) == 1 else kept[schemes[-1]])
    if schemes[0].lower() in {"http", "https"}:
        kept["client_kwargs"] = {"auto_decompress": False, **(kept.get("client_kwargs") or {})}
    fs, _ = url_to_fs(place.url, **kept)
    layer = fs
    while layer is not None:
        cache = getattr(layer, "dircache", None)
        if cache is not None and hasattr(cache, "use_listings_cache"):
            cache.use_listings_cache = False
        if hasattr(type(layer), "retries"):
            layer.retries = 1  # s3fs
        inside = getattr(layer, "__dict__", {})
        layer = inside.get("fs")
    return fs


def _one_attempt(options: dict[str, Any]) -> None:
    """Keep botocore from repeating requests below us."""
    config = dict(options.get("config_kwargs") or {})
    config.setdefault("retries", {"total_max_attempts": 1})
    options["config_kwargs"] = config


def _port(fs: Any) -> Port:  # noqa: ANN401
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol == "s3" and getattr(fs, "async_impl", False) and hasattr(fs, "_call_s3"):
        from streamfeed.storage.port_s3 import S3Port

        return S3Port(fs)
    if protocol in {"http", "https"} and hasattr(fs, "set_session"):
        from streamfeed.storage.port_http import HttpPort

        return HttpPort(fs)
    from streamfeed.storage.port_any import AnyPort

    if protocol == "hf":
        from streamfeed.storage.hub.port import HubPort

        return HubPort(fs, AnyPort(fs))
    return AnyPort(fs)
