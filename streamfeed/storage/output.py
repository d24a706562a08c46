"""A folder that is written: names appear in it whole or not at all, on a disk or in a store of fsspec.

On a disk that is a rename inside the folder, in a store of objects a completed upload. Elsewhere (ftp, a mounted share
through fsspec) an upload is renamed; how whole that is, the store decides. Nothing is flushed: a file that a process
leaves is whole however it ends, and what a loss of power takes, a checksum shows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast

from streamfeed.config import RetryPolicy
from streamfeed.errors import ReadError, SourceError
from streamfeed.stats import ReadStats
from streamfeed.storage.files import local_version
from streamfeed.storage.urls import is_remote, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["LocalOutput", "Output", "Placed", "RemoteOutput", "output_at"]

T = TypeVar("T")

_PUT_S = 3600.0
"""An upload may take that long; it is not repeated by byte, so a limit by size would only guess."""

_OBJECTS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "adl", "hf", "memory", "oss", "oci", "r2"}
"""Stores in which an object appears when its upload is complete."""


class Placed(NamedTuple):
    """A file in the folder: its bytes and its version there (an etag, or bytes and time), empty where none is known."""

    size: int
    version: str


class Output(Protocol):
    """A folder that is written. Names are relative, with ``/`` between folders."""

    shown: str
    """its redacted URL, for messages"""

    def url(self, name: str) -> str:
        """Return what opens ``name``: a path, or a URL."""

    def names(self) -> dict[str, int]:
        """Return the bytes of all files in the folder, by name; of a folder that is not there, none."""

    def look(self, name: str) -> Placed | None:
        """Return what is at ``name``, None where nothing is."""

    def read(self, name: str) -> bytes | None:
        """Return the bytes at ``name``, None where nothing is."""

    def open(self, name: str) -> BinaryIO:
        """Return the file at ``name`` for reading, which can be sought."""

    def write(self, name: str, data: bytes) -> None:
        """Put a small file at ``name``, in place of what is there."""

    def place(self, path: Path, name: str) -> Placed:
        """Move the local file ``path``, made in :meth:`scratch`, to ``name``."""

    def remove(self, names: list[str]) -> None:
        """Remove files, and folders that are then empty."""

    def clear(self, folder: str) -> None:
        """Remove a folder with all that is in it."""

    def scratch(self) -> AbstractContextManager[Path]:
        """Return a context with a new local folder to make files in."""


def output_at(url: str, options: Mapping[str, Any] | None = None) -> Output:
    """Return the folder at ``url``, a path or an fsspec URL; ``options`` are fsspec's."""
    return RemoteOutput(url, options) if is_remote(url) else LocalOutput(Path(url.removeprefix("file://")))


class LocalOutput:
    """A folder on a disk. ``work`` is the name of a folder in it where files are made, so that a rename is one."""

    def __init__(self, folder: Path, work: str = "_convert") -> None:
        self.folder = folder.expanduser().absolute()
        self.shown = str(self.folder)
        self._tmp = self.folder / work / "tmp"

    def url(self, name: str) -> str:
        """Return the path of ``name``."""
        return str(self.folder / name)

    def names(self) -> dict[str, int]:
        """Return the bytes of all files; see :class:`Output`."""
        found = (Path(root) / file for root, _, files in os.walk(self.folder) for file in files)
        return {path.relative_to(self.folder).as_posix(): path.lstat().st_size for path in found}

    def look(self, name: str) -> Placed | None:
        """Return what is at ``name``."""
        try:
            found = (self.folder / name).stat()
        except FileNotFoundError:
            return None
        return Placed(found.st_size, local_version(found))

    def read(self, name: str) -> bytes | None:
        """Return the bytes at ``name``."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, name: str) -> BinaryIO:
        """Return the file at ``name``."""
        return (self.folder / name).open("rb")

    def write(self, name: str, data: bytes) -> None:
        """Put a small file at ``name``."""
        _write(self, name, data)

    def place(self, path: Path, name: str) -> Placed:
        """Move a file to ``name`` by a rename."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        found = target.stat()
        return Placed(found.st_size, local_version(found))

    def remove(self, names: list[str]) -> None:
        """Remove files, and folders that are then empty."""
        folders: set[Path] = set()
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            folders |= {parent for parent in path.parents if self.folder in parent.parents}
        for folder in sorted(folders, reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()

    def clear(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        shutil.rmtree(self.folder / folder, ignore_errors=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Return a context with a new folder on the same disk."""
        self._tmp.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self._tmp))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class RemoteOutput:
    """A folder in a store of fsspec; every call is repeated by the policy, and errors show no secret."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, policy: RetryPolicy | None = None) -> None:
        from streamfeed.storage.client import Clients
        from streamfeed.storage.retry import Retrier

        self.shown = redact(url)
        self._url = url.rstrip("/")
        self._clients = Clients(dict(options or {}))
        self._policy = policy or RetryPolicy()
        self._retrier = Retrier(self._policy, ReadStats())
        self._objects = url.partition("://")[0].lower() in _OBJECTS

    def url(self, name: str) -> str:
        """Return the URL of ``name``."""
        return f"{self._url}/{name}"

    def names(self) -> dict[str, int]:
        """Return the bytes of all files; see :class:`Output`."""
        root = self._path("").rstrip("/") + "/"
        found = self._call(lambda fs: fs.find(root, detail=True), 20) or {}
        sizes = {
            str(path): int(info.get("size") or 0) for path, info in found.items() if info.get("type") != "directory"
        }
        return {path[len(root) :]: size for path, size in sizes.items() if path.startswith(root) and path != root}

    def look(self, name: str) -> Placed | None:
        """Return what is at ``name``."""
        from streamfeed.storage.port_any import version_of

        info = self._call(lambda fs: fs.info(self._path(name)))
        if info is None or info.get("type") == "directory":
            return None
        size = int(info.get("size") or 0)
        return Placed(size, version_of(info, size))

    def read(self, name: str) -> bytes | None:
        """Return the bytes at ``name``."""
        return cast("bytes | None", self._call(lambda fs: fs.cat_file(self._path(name)), 20))

    def open(self, name: str) -> BinaryIO:
        """Return the file at ``name``."""
        found = self._call(lambda fs: fs.open(self._path(name), "rb"))
        if found is None:
            raise ReadError(f"{self.shown}/{name}", "", "is not there")
        return cast("BinaryIO", found)

    def write(self, name: str, data: bytes) -> None:
        """Put a small file at ``name``."""
        _write(self, name, data)

    def place(self, path: Path, name: str) -> Placed:
        """Upload a file to ``name``."""
        target = self._path(name)

        def put(fs: Any) -> bool:  # noqa: ANN401
            if not self._objects:
                fs.makedirs(target.rpartition("/")[0], exist_ok=True)
                aside = self._path(f"_convert/tmp/{path.parent.name}")
                fs.makedirs(aside.rpartition("/")[0], exist_ok=True)
                fs.put_file(str(path), aside)
                fs.mv(aside, target)
            else:
                fs.put_file(str(path), target)
            return True

        if self._call(put, _PUT_S / self._policy.stall_s) is None:
            raise SourceError(f"{self.shown}: there is no such bucket or folder to write to")
        size = path.stat().st_size
        path.unlink()
        found = self.look(name)
        if found is None or found.size != size:
            raise ReadError(f"{self.shown}/{name}", "", "the store does not have what was just uploaded", "try again")
        return found

    def remove(self, names: list[str]) -> None:
        """Remove files."""
        for path in map(self._path, names):
            self._call(partial(_removed, path=path))

    def clear(self, folder: str) -> None:
        """Remove all files below a folder."""
        self.remove([name for name in self.names() if name.startswith(f"{folder}/")])

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Return a context with a new local folder."""
        with tempfile.TemporaryDirectory(prefix="streamfeed-convert-") as folder:
            yield Path(folder)

    def _path(self, name: str) -> str:
        return self._clients.of(f"{self._url}/{name}")[1]

    def _call(self, ask: Callable[[Any], T], stalls: float = 4) -> T | None:
        """Return what the file system answers, None for "not found"; raises :class:`ReadError` for a failure."""
        from streamfeed.storage.client import run_sync
        from streamfeed.storage.faults import Kind
        from streamfeed.storage.retry import GaveUpError

        client, _ = self._clients.of(f"{self._url}/x")
        made = 0

        def attempt() -> T:
            nonlocal made
            fs, made = client.file_system()
            return run_sync(lambda: ask(fs), self._policy.stall_s * stalls)

        try:
            return self._retrier.call(attempt, self.shown, lambda: client.renew(made))
        except GaveUpError as gave:
            if gave.fault.kind is Kind.MISSING:
                return None
            failure = ReadError(self.shown, "", f"the store failed: {gave}", "run it again: what is finished is kept")
        raise failure


def _write(output: Output, name: str, data: bytes) -> None:
    with output.scratch() as scratch:
        path = scratch / "file"
        path.write_bytes(data)
        output.place(path, name)


def _removed(fs: Any, path: str) -> bool:  # noqa: ANN401
    fs.rm_file(path)
    return True
