"""What a loopback Hub holds: dataset repositories with commits, branches and tags."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Blob", "Missing", "Repo"]


class Missing(Exception):  # noqa: N818
    """What was asked for is not there; ``code`` is the Hub's ``X-Error-Code``."""

    def __init__(self, code: str, message: str, status: int = 404) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


@dataclass(frozen=True)
class Blob:
    """One file of a commit; a large one is kept in large file storage, as on the Hub."""

    data: bytes
    large: bool

    @property
    def oid(self) -> str:
        """Git's hash of the file, or of the pointer to it."""
        stored = self.pointer if self.large else self.data
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored, usedforsecurity=False).hexdigest()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.data)}\n".encode()

    @property
    def etag(self) -> str:
        """What the Hub names as the file's ETag, unquoted."""
        return self.sha256 if self.large else self.oid

    def entry(self, path: str) -> dict[str, Any]:
        """The file as the tree lists it."""
        entry: dict[str, Any] = {"type": "file", "oid": self.oid, "size": len(self.data), "path": path}
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.data), "pointerSize": len(self.pointer)}
        return entry


@dataclass
class Repo:
    """A dataset repository. Files of at least ``large`` bytes are large files."""

    name: str
    private: bool = False
    large: int = 1000
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    _number: itertools.count[int] = field(default_factory=itertools.count, repr=False)

    def commit(
        self, files: Mapping[str, bytes | str], *, branch: str = "main", tag: str | None = None, replace: bool = False
    ) -> str:
        """Add a commit that writes ``files`` (``replace``: and drops all others); return its sha."""
        tree = {} if replace else dict(self.commits.get(self.refs.get(branch, ""), {}))
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            tree[path] = Blob(data, len(data) >= self.large)
        sha = _hash(f"{self.name}/{next(self._number)}/{[(path, blob.oid) for path, blob in sorted(tree.items())]}")
        self.commits[sha] = tree
        self.refs[branch] = sha
        if tag is not None:
            self.refs[tag] = sha
        return sha

    def sha(self, revision: str) -> str:
        """Return the commit that a branch, a tag or a sha means."""
        sha = self.refs.get(revision, revision)
        if sha not in self.commits:
            raise Missing("RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    def blob(self, revision: str, path: str) -> Blob:
        """Return one file."""
        try:
            return self.commits[self.sha(revision)][path]
        except KeyError:
            raise Missing("EntryNotFound", "Entry not found") from None

    def tree(self, revision: str, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
        """Return the entries of a folder, those of the folders in it too if ``recursive``, sorted as the Hub does."""
        prefix = folder + "/" if folder else ""
        files = {path: blob for path, blob in self.commits[self.sha(revision)].items() if path.startswith(prefix)}
        if folder and not files:
            raise Missing("EntryNotFound", f'"{folder}" does not exist on "{revision}"')
        entries: dict[str, dict[str, Any]] = {}
        for path, blob in files.items():
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts)):
                above = prefix + "/".join(parts[:depth])
                if recursive or depth == 1:
                    entries[above] = {"type": "directory", "oid": _hash(above), "size": 0, "path": above}
            if recursive or len(parts) == 1:
                entries[path] = blob.entry(path)
        return [entries[path] for path in sorted(entries)]

    def info(self, revision: str) -> dict[str, Any]:
        """Return the repository as the API describes it at a revision."""
        sha = self.sha(revision)
        return {
            "_id": _hash(self.name)[:24],
            "id": self.name,
            "author": self.name.split("/", maxsplit=1)[0],
            "sha": sha,
            "private": self.private,
            "gated": False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "lastModified": "2026-01-01T00:00:00.000Z",
            "createdAt": "2026-01-01T00:00:00.000Z",
            "siblings": [{"rfilename": path} for path in sorted(self.commits[sha])],
        }


def _hash(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
