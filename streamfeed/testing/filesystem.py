"""The file system ``flaky``: another one, with faults in front of it."""

from __future__ import annotations

import hashlib
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from streamfeed.testing.faults import Changed, CutBody, Effect, Expired, Latency, Reset, ShortRead, Stall, Status
from streamfeed.testing.responses import ErrorStyle, cut_body, refusal, reset
from streamfeed.testing.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["FlakyFileSystem"]

T = TypeVar("T")

_POLL_S = 0.01


class FlakyFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Another file system behind a schedule of faults, every call to it noted. Reading only.

    ``schedule`` says which calls fail and keeps the log. ``target_protocol`` and ``target_options`` name the file
    system behind (``fs`` hands one over instead, in this process). A path is what the target takes behind its protocol:
    ``flaky:///data/x`` is ``/data/x`` locally or in memory, ``flaky://bucket/key`` with ``target_protocol="s3"`` an
    object. ``latency_s`` is added to every call. ``style`` says whose exceptions refusals raise: ``"http"`` (aiohttp)
    or ``"s3"`` (s3fs).

    Every entry has an ``ETag``: the target's own, or one made of size and time. An instance is never cached: to make
    one is to connect with a new credential.
    """

    protocol = "flaky"
    cachable = False

    def __init__(
        self,
        schedule: Schedule | None = None,
        target_protocol: str = "file",
        target_options: Mapping[str, Any] | None = None,
        fs: AbstractFileSystem | None = None,
        latency_s: float = 0.0,
        style: ErrorStyle = "http",
        **options: object,
    ) -> None:
        super().__init__(**{**options, "use_listings_cache": False})
        uncached = {"skip_instance_cache": True, "use_listings_cache": False, **(target_options or {})}
        self.target = fsspec.filesystem(target_protocol, **uncached) if fs is None else fs
        self.schedule = Schedule() if schedule is None else schedule
        self._latency = latency_s
        self._style: ErrorStyle = style
        self._expired: Expired | None = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        bare = str(path).removeprefix("flaky://")
        return bare.rstrip("/") or bare[:1]

    # What is read

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """List one folder, in one call."""
        path = self._strip_protocol(path)
        found = self._call("ls", path, lambda: self.target.ls(path, detail=True))
        entries = [self._entry(entry) for entry in found]
        return entries if detail else sorted(entry["name"] for entry in entries)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: object
    ) -> dict[str, dict[str, Any]] | list[str]:
        """List all files below ``path``, in one call, as an object store does."""
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = self._call(
            "find", path, lambda: self.target.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        )
        return {name: self._entry(entry) for name, entry in found.items()} if detail else sorted(found)

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return size, type and ETag of one file or folder."""
        path = self._strip_protocol(path)
        entry: dict[str, Any] = self._call("info", path, lambda: self.target.info(path))
        return self._entry(entry)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return the bytes ``[start, end)`` of a file, or all of it."""
        return self._read("cat_file", self._strip_protocol(path), start, end)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:  # noqa: ANN401 - fsspec's signature
        if mode != "rb":
            return self.target.open(path, mode)
        entry = self._entry(self._call("open", path, lambda: self.target.info(path)))
        return _FlakyFile(self, path, size=entry["size"], **{**options, "cache_type": "none"})

    def _read(self, op: str, path: str, start: int | None, end: int | None) -> bytes:
        effects = self.schedule.note(op, path, start, end)
        self._suffer(effects, path)
        changed = next((effect for effect in effects if isinstance(effect, Changed)), None)
        if changed is not None and changed.content is not None:
            data = changed.content[start:end]
        else:
            data = self.target.cat_file(path, start=start, end=end)
        for effect in effects:
            if isinstance(effect, CutBody):
                raise cut_body()
            if isinstance(effect, ShortRead):
                data = data[: int(len(data) * effect.keep)]
        return data

    # What is written, to set a test up: no faults

    def pipe_file(self, path: str, value: bytes, **_: object) -> None:
        """Write a file."""
        self.target.pipe_file(self._strip_protocol(path), value)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder."""
        self.target.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    # Faults

    def _call(self, op: str, path: str, ask: Callable[[], T]) -> T:
        self._suffer(self.schedule.note(op, path), path)
        return ask()

    def _suffer(self, effects: Sequence[Effect], path: str) -> None:
        """Have what befalls a call before there are bytes."""
        if self._latency:
            time.sleep(self._latency)
        for effect in effects:
            match effect:
                case Latency():
                    time.sleep(effect.seconds)
                case Stall():
                    _wait(effect)
                case Reset():
                    raise reset()
                case Status():
                    raise refusal(self._style, path, effect.code, effect.retry_after, effect.reason)
                case Expired():
                    self._expired = effect
                case _:
                    pass  # has to do with the bytes
        if self._expired is not None:
            raise refusal(self._style, path, self._expired.code, None, "ExpiredToken")

    def _entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return a listed entry with its ETag, changed where the object has."""
        found = dict(entry)
        if found["type"] != "file":
            return found
        etag = str(found.get("ETag") or found.get("etag") or f'"{_tag_of(found)}"')
        changed = self.schedule.changed(found["name"])
        if changed is not None:
            etag = etag[:-1] + '-changed"' if etag.endswith('"') else etag + "-changed"
            found["size"] = found["size"] if changed.content is None else len(changed.content)
        return {**found, "ETag": etag}


class _FlakyFile(AbstractBufferedFile):  # type: ignore[misc]
    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs._read("read", self.path, start, end)  # noqa: SLF001 - one class in two
        return data


def _tag_of(entry: Mapping[str, Any]) -> str:
    times = [entry[key] for key in ("mtime", "LastModified", "created") if key in entry][:1]
    times = [at.timestamp() if isinstance(at, datetime) else at for at in times]
    return hashlib.md5(f"{entry['size']} {times}".encode(), usedforsecurity=False).hexdigest()


def _wait(stall: Stall) -> None:
    if isinstance(stall.until, threading.Event):
        happened = stall.until.wait(stall.most_s)
    else:
        last = time.monotonic() + stall.most_s
        while not (happened := Path(stall.until).exists()) and time.monotonic() < last:
            time.sleep(_POLL_S)
    if not happened:
        raise reset()
