"""Walks folders for the files that a glob means; one ``scandir`` a folder, one ``stat`` a file."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import SourceError
from streamfeed.storage.files import local_version

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HIDDEN", "Found", "find", "is_marker", "matcher"]

_MARKER = re.compile(
    r"(readme|licen[sc]e|manifest)\b.*|index\.json|.*\.(crc|md|idx|index|lock|md5|sha256)", re.IGNORECASE
)
HIDDEN = (".", "_")
"""How names begin that are passed over unless a pattern begins so too."""


class Found(NamedTuple):
    """A file: absolute path or URL, name relative to the folder that was searched, bytes, and its version."""

    path: str
    name: str
    size: int
    version: str = ""


def is_marker(name: str) -> bool:
    """Return whether a file of this name is about shards and none itself.

    These are README, LICENSE and manifest files, ``index.json``, and the suffixes .crc, .md, .idx, .index, .lock, .md5
    and .sha256, in either case (``_SUCCESS`` and its like are hidden files already).
    """
    return _MARKER.fullmatch(name) is not None


def find(folder: str, parts: list[str]) -> tuple[list[Found], int]:
    """Return the files below ``folder`` that match, sorted by name, and the number passed over.

    ``parts`` are the patterns of the path's components; ``**`` is any number of folders, and every file where it is
    last. A folder that the last pattern matches means every file below it.
    Raises :class:`SourceError` where a folder cannot be listed, or a link leads nowhere.
    """
    search = _Search()
    search.folder(folder, "", tuple(parts), ())
    return sorted(search.found.values(), key=lambda file: file.name), len(search.ignored)


class _Search:
    def __init__(self) -> None:
        self.found: dict[str, Found] = {}  # by name: two ways through ** may lead to one file
        self.ignored: set[str] = set()

    def folder(self, path: str, prefix: str, parts: tuple[str, ...], above: tuple[tuple[int, int], ...]) -> None:
        """Search one folder for ``parts``; ``above`` are the folders that links led through, to see a loop."""
        part, rest = parts[0], parts[1:]
        if part == "**" and rest:
            self.folder(path, prefix, rest, above)
        matches = matcher(part)
        shown = part.startswith(HIDDEN)  # a pattern that begins so asks for hidden names
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if matches(entry.name):
                        self._entry(entry, prefix + entry.name, parts, above, shown=shown)
        except OSError as error:
            raise SourceError(f"{path}: the folder cannot be listed: {error}") from error

    def _entry(
        self,
        entry: os.DirEntry[str],
        name: str,
        parts: tuple[str, ...],
        above: tuple[tuple[int, int], ...],
        *,
        shown: bool,
    ) -> None:
        deep, last = parts[0] == "**", len(parts) == 1
        folder = entry.is_dir()
        if not folder and not last:
            return
        if entry.name.startswith(HIDDEN) and not shown:
            self.ignored.add(name)
        elif folder:
            self._enter(entry, name, parts if deep else parts[1:] or ("**",), above)
        elif is_marker(entry.name) or not (entry.is_file() or entry.is_symlink()):
            self.ignored.add(name)
        else:
            stat = entry.stat()
            self.found[name] = Found(entry.path, name, stat.st_size, local_version(stat))

    def _enter(
        self, entry: os.DirEntry[str], name: str, parts: tuple[str, ...], above: tuple[tuple[int, int], ...]
    ) -> None:
        if entry.is_symlink():
            stat = entry.stat()
            place = (stat.st_dev, stat.st_ino)
            if place in above:
                raise SourceError(f"{entry.path}: the link leads back to a folder that holds it")
            above = (*above, place)
        self.folder(entry.path, name + "/", parts, above)


def matcher(part: str) -> Callable[[str], object]:
    """Return what says whether a name matches one component of a pattern."""
    if part == "**" or part == "*":
        return lambda _: True
    return re.compile(fnmatch.translate(part)).match
