"""Which files a source's URIs mean.

A URI is a file, a folder (everything below it, sorted), a glob (``*``, ``?``, ``[a-z]``, ``**`` for any folders;
sorted), a brace pattern (``shard-{0000..0999}.tar``, in its own order), or a mix of both. A path that exists as it is
written is that path, whatever its characters could mean.

What folders and globs find is passed over, and counted, by two rules:

* hidden: a name below the listed folder that begins with ``.`` or ``_`` (a hidden folder counts once, with all it
  holds), unless the glob itself begins so;
* marker files: see :func:`is_marker`.

A URI that names a file itself is taken at its word.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from braceexpand import braceexpand

from streamfeed.errors import SourceError
from streamfeed.storage.files import local_version
from streamfeed.storage.urls import is_remote, place_of, redact
from streamfeed.storage.walk import Found, find, is_marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streamfeed.storage.hub.listing import HubListing

__all__ = ["MAGIC", "Lister", "Listing", "expanded", "is_marker", "listing_of", "nothing_in", "resolve"]

MAGIC = frozenset("*?[")
"""Characters that make a path a pattern; ``{`` is another."""


class Lister(Protocol):
    """Lists what is on no disk of this machine."""

    def prepare(self, uris: Sequence[str]) -> None:
        """Do at once what the questions about ``uris`` that will follow have in common."""

    def one(self, uri: str) -> tuple[list[Found], int]:
        """Return the files that ``uri`` means and how many were passed over; one named itself has an empty name."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The shards of a source, in order.

    ``urls`` opens them (absolute paths, or URLs). ``names`` are their stable relative names for the fingerprint: moving
    the whole corpus to another folder does not change them. ``sizes`` are in bytes. ``ignored`` counts the hidden and
    marker files passed over. ``versions`` tell a file from one that takes its place: an etag, or bytes and time of last
    change; empty where a store says neither. ``datasets`` are the datasets on the Hub that shards are of.
    """

    urls: list[str]
    names: list[str]
    sizes: list[int]
    ignored: int
    versions: list[str]
    datasets: Sequence[HubListing] = ()

    def part(self, kept: Sequence[int]) -> Listing:
        """Return the shards with these indices, in their order."""
        return replace(
            self,
            urls=[self.urls[i] for i in kept],
            names=[self.names[i] for i in kept],
            sizes=[self.sizes[i] for i in kept],
            versions=[self.versions[i] for i in kept],
        )


def resolve(uris: Sequence[str], remote: Lister | None = None) -> Listing:
    """List the shards that ``uris`` mean, in order; those in a store by ``remote``.

    Raises :class:`~streamfeed.errors.SourceError` where a URI means nothing, or only files that are passed over, where
    a folder cannot be listed, and where one file is meant twice.
    """
    named: list[Found] = []  # files that a URI names itself, in the order of the placeholders in found
    found: list[Found | None] = []
    ignored = 0
    if remote is not None:
        remote.prepare(uris)
    for uri in uris:
        hits, passed = remote.one(uri) if remote is not None and is_remote(uri) else _one(uri)
        ignored += passed
        for hit in hits:
            found.append(hit if hit.name else None)
            named.extend([] if hit.name else [hit])
    renamed = iter(_relative(named))
    files = [hit if hit is not None else next(renamed) for hit in found]
    _refuse_doubles([file.path for file in files])
    return listing_of(files, ignored)


def listing_of(files: Sequence[Found], ignored: int) -> Listing:
    """Return the listing of named ``files``."""
    return Listing(
        [file.path for file in files],
        [file.name for file in files],
        [file.size for file in files],
        ignored,
        [file.version for file in files],
    )


def _one(uri: str) -> tuple[list[Found], int]:
    path = _local(uri)
    direct = _existing(path)
    if direct is not None:
        return _listed(uri, direct) if direct.size < 0 else ([direct], 0)
    if "{" not in path and not MAGIC & set(path):
        raise SourceError(f"{redact(uri)}: there is no such file or folder")
    fixed = _fixed_folder(path)
    hits: list[Found] = []
    ignored = 0
    for part in expanded(path, path):
        more, passed = _part(part, fixed, uri)
        hits += more
        ignored += passed
    if not hits:
        raise SourceError(nothing_in(uri, "the pattern matches", ignored))
    return hits, ignored


def _part(path: str, fixed: str, uri: str) -> tuple[list[Found], int]:
    """Return the files of one expansion of a pattern, named relative to the folder ``fixed``."""
    direct = _existing(path)
    if direct is None and not MAGIC & set(path):
        raise SourceError(f"{redact(uri)}: the pattern names {path}, and there is no such file or folder")
    if direct is not None and direct.size >= 0:
        return [direct._replace(name=_below(direct.path, fixed))], 0
    base, pattern = (direct.path, ["**"]) if direct is not None else _cut(path)
    hits, ignored = find(base, pattern)
    if base == fixed:
        return hits, ignored
    prefix = _below(base, fixed)
    return [hit._replace(name=f"{prefix}/{hit.name}") for hit in hits], ignored


def _below(path: str, folder: str) -> str:
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else os.path.relpath(path, folder)


def _listed(uri: str, folder: Found) -> tuple[list[Found], int]:
    hits, ignored = find(folder.path, ["**"])
    if not hits:
        raise SourceError(nothing_in(uri, "the folder holds", ignored))
    return hits, ignored


def nothing_in(uri: str, what: str, ignored: int) -> str:
    """Say that a folder or pattern holds no file, but perhaps ``ignored`` ones."""
    if not ignored:
        return f"{redact(uri)}: {what} no file"
    return f"{redact(uri)}: {what} only hidden or marker files ({ignored:,} passed over); name a file itself to read it"


def _local(uri: str) -> str:
    scheme, separator, _ = uri.partition("://")
    if separator and scheme.lower() == "file":
        parts = urlsplit(uri)
        if parts.netloc not in {"", "localhost"}:
            raise SourceError(f"{redact(uri)}: file:// takes a path of this machine, as in file:///data/x.jsonl")
        return unquote(parts.path)
    if is_remote(uri):
        raise SourceError(f"{redact(uri)}: this is no path of this machine")
    return str(Path(uri).expanduser()) if uri.startswith("~") else uri


def _existing(path: str) -> Found | None:
    """Return the file at ``path`` (a folder has size -1), nameless as yet."""
    try:
        found = os.stat(path)  # noqa: PTH116 (a million paths of a brace pattern)
    except (OSError, ValueError):
        return None
    size = -1 if stat.S_ISDIR(found.st_mode) else found.st_size
    return Found(os.path.abspath(path), "", size, local_version(found))  # noqa: PTH100 (links are kept)


def expanded(path: str, shown: str) -> Iterator[str]:
    """Yield the paths that a brace pattern means, in its order; ``shown`` names it in an error."""
    try:
        yield from braceexpand(path) if "{" in path else [path]
    except ValueError as error:  # braceexpand's UnbalancedBracesError is one
        raise SourceError(f"{shown}: there is no such file, and as a brace pattern it is unbalanced") from error


def _fixed_folder(path: str) -> str:
    """Return the folder before the first character with a meaning."""
    at = min(i for i, char in enumerate(path) if char in MAGIC or char == "{")
    return os.path.abspath(path[: path.rfind("/", 0, at) + 1] or ".")  # noqa: PTH100


def _cut(path: str) -> tuple[str, list[str]]:
    """Return the folder that holds no pattern, absolute, and the patterns below it."""
    base = path[: path.rfind("/", 0, min(i for i, char in enumerate(path) if char in MAGIC)) + 1]
    rest = [part for part in path[len(base) :].split("/") if part not in {"", "."}]
    return os.path.abspath(base or "."), rest  # noqa: PTH100


def _relative(files: list[Found]) -> Iterator[Found]:
    """Name the files that were named themselves, relative to the folder that they share."""
    if files:
        places = [place_of(file.path) for file in files]
        paths = [(place.head + place.path).split("/") for place in places]
        first, last = min(paths), max(paths)
        folders = min(len(path) for path in paths) - 1
        shared = next((i for i in range(folders) if first[i] != last[i]), folders)
        for file, path in zip(files, paths, strict=True):
            yield file._replace(name="/".join(path[shared:]))


def _refuse_doubles(paths: Iterable[str]) -> None:
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise SourceError(f"{redact(path)} is meant twice; a file can be in a source once")
        seen.add(path)
