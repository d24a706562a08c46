"""Any other file system of fsspec, by what all of them have."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from streamfeed.storage.client import Entry, Limits, Progress, run_async, run_sync
from streamfeed.storage.faults import RefusedError, ShortReadError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AnyPort", "version_of"]

T = TypeVar("T")

_TAGS = ("ETag", "etag", "e_tag", "md5Hash", "content_md5", "CRC")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


class AnyPort:
    """Asks by ``cat_file``, ``info``, ``find`` and ``ls``; reads say nothing of versions."""

    conditional = False

    def __init__(self, fs: Any) -> None:  # noqa: ANN401
        from fsspec.asyn import AsyncFileSystem
        from fsspec.spec import AbstractFileSystem

        self._fs = fs
        self._async = isinstance(fs, AsyncFileSystem) and fs.async_impl and not fs.asynchronous
        name, base = ("_find", AsyncFileSystem) if self._async else ("find", AbstractFileSystem)
        # The default find() swallows failures of the folders that it walks. An own one is that of a flat store.
        self._flat = getattr(type(fs), name) is not getattr(base, name)

    def read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:  # noqa: ARG002
        """Read a range."""
        data = self._call("cat_file", limits.whole(stop - start), path, start=start, end=stop)
        if len(data) > stop - start:  # the range was ignored, or what is stored was unpacked on the way
            raise RefusedError("the store answers more bytes than it was asked for, so they cannot be trusted")
        into.add(data)
        if len(data) < stop - start:
            raise ShortReadError

    def info(self, path: str, limits: Limits) -> Entry:
        """Return what is at ``path``."""
        return _entry(self._call("info", limits.stall_s, path))

    def tree(self, path: str, stem: str, token: str, limits: Limits) -> tuple[list[Entry], str] | None:  # noqa: ARG002
        """Return all files below ``path``, where the file system has a flat listing."""
        if not self._flat:
            return None
        found = self._call("find", limits.stall_s * 20, path, detail=True)
        entries = [_entry(one) for one in found.values()]
        return [entry for entry in entries if not entry.folder and not entry.path.endswith("/")], ""

    def folder(self, path: str, limits: Limits) -> list[Entry]:
        """Return what is right below ``path``."""
        found = [_entry(one) for one in self._call("ls", limits.stall_s * 4, path, detail=True)]
        return [entry for entry in found if entry.path.rstrip("/") != path.rstrip("/")]

    def _call(self, name: str, limit: float, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if self._async:
            return run_async(self._fs, getattr(self._fs, "_" + name)(*args, **options), limit)
        return run_sync(lambda: getattr(self._fs, name)(*args, **options), limit)


def _entry(info: Mapping[str, Any]) -> Entry:
    folder = info.get("type") == "directory"
    if info.get("size") is None and not folder:
        raise RefusedError("the store does not say how large the file is, so it cannot be read in parts")
    size = int(info.get("size") or 0)
    return Entry(str(info["name"]), size, "" if folder else version_of(info, size), folder)


def version_of(info: Mapping[str, Any], size: int) -> str:
    """Return what tells a file from one that takes its place: its tag, or bytes and time; empty for neither."""
    for name in _TAGS:
        if info.get(name):
            return str(info[name])
    for name in _TIMES:
        found = info.get(name)
        if found:
            return f"{size}-{found.timestamp() if isinstance(found, datetime) else found}"
    return ""
