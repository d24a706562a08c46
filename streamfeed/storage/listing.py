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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from braceexpand import braceexpand

from streamfeed.errors import SourceError
from streamfeed.storage.files import local_version
from streamfeed.storage.urls import redact
from streamfeed.storage.walk import Found, find, is_marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Listing", "is_marker", "listing_of", "resolve"]

_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Listing:
    """The shards of a source, in order.

    ``urls`` opens them (absolute paths). ``names`` are their stable relative names for the fingerprint: moving the
    whole corpus to another folder does not change them. ``sizes`` are in bytes. ``ignored`` counts the hidden and
    marker files passed over. ``versions`` tell a file from one that takes its place: an etag, or bytes and time of last
    change; empty where a store says neither.
    """

    urls: list[str]
    names: list[str]
    sizes: list[int]
    ignored: int
    versions: list[str]


def resolve(uris: Sequence[str]) -> Listing:
    """List the shards that ``uris`` mean, in order.

    Raises :class:`~streamfeed.errors.SourceError` where a URI means nothing, or only files that are passed over, where
    a folder cannot be listed, and where one file is meant twice.
    """
    named: list[Found] = []  # files that a URI names itself, in the order of the placeholders in found
    found: list[Found | None] = []
    ignored = 0
    for uri in uris:
        hits, passed = _one(uri)
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
    if "{" not in path and not _MAGIC & set(path):
        raise SourceError(f"{redact(uri)}: there is no such file or folder")
    fixed = _fixed_folder(path)
    hits: list[Found] = []
    ignored = 0
    for part in _expanded(path):
        more, passed = _part(part, fixed, uri)
        hits += more
        ignored += passed
    if not hits:
        raise SourceError(_nothing(uri, "the pattern matches", ignored))
    return hits, ignored


def _part(path: str, fixed: str, uri: str) -> tuple[list[Found], int]:
    """Return the files of one expansion of a pattern, named relative to the folder ``fixed``."""
    direct = _existing(path)
    if direct is None and not _MAGIC & set(path):
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
        raise SourceError(_nothing(uri, "the folder holds", ignored))
    return hits, ignored


def _nothing(uri: str, what: str, ignored: int) -> str:
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
    if separator and scheme.isalnum():
        raise SourceError(
            f"{redact(uri)}: remote stores ({scheme}://) come with the storage extra, which is not built yet"
        )
    return str(Path(uri).expanduser()) if uri.startswith("~") else uri


def _existing(path: str) -> Found | None:
    """Return the file at ``path`` (a folder has size -1), nameless as yet."""
    try:
        found = os.stat(path)  # noqa: PTH116 (a million paths of a brace pattern)
    except (OSError, ValueError):
        return None
    size = -1 if stat.S_ISDIR(found.st_mode) else found.st_size
    return Found(os.path.abspath(path), "", size, local_version(found))  # noqa: PTH100 (links are kept)


def _expanded(path: str) -> Iterator[str]:
    try:
        yield from braceexpand(path) if "{" in path else [path]
    except ValueError as error:  # braceexpand's UnbalancedBracesError is one
        raise SourceError(f"{path}: there is no such file, and as a brace pattern it is unbalanced") from error


def _fixed_folder(path: str) -> str:
    """Return the folder before the first character with a meaning."""
    at = min(i for i, char in enumerate(path) if char in _MAGIC or char == "{")
    return os.path.abspath(path[: path.rfind("/", 0, at) + 1] or ".")  # noqa: PTH100


def _cut(path: str) -> tuple[str, list[str]]:
    """Return the folder that holds no pattern, absolute, and the patterns below it."""
    base = path[: path.rfind("/", 0, min(i for i, char in enumerate(path) if char in _MAGIC)) + 1]
    rest = [part for part in path[len(base) :].split("/") if part not in {"", "."}]
    return os.path.abspath(base or "."), rest  # noqa: PTH100


def _relative(files: list[Found]) -> Iterator[Found]:
    """Name the files that were named themselves, relative to the folder that they share."""
    if files:
        shared = os.path.commonpath([os.path.dirname(file.path) for file in files])  # noqa: PTH120
        for file in files:
            yield file._replace(name=_below(file.path, shared))


def _refuse_doubles(paths: Iterable[str]) -> None:
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise SourceError(f"{path} is meant twice; a file can be in a source once")
        seen.add(path)
