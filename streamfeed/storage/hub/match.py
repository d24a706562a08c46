"""Which names of a flat list a pattern means, by the rules of :mod:`streamfeed.storage.walk`."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.storage.walk import is_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Selection", "select"]

_HIDDEN = (".", "_")


class Selection(NamedTuple):
    """The names that a pattern means, sorted, and those that it passes over for being hidden or markers."""

    hits: list[str]
    ignored: set[str]


def select(names: Iterable[str], pattern: str) -> Selection:
    """Return which of ``names``, relative paths, the pattern means.

    ``**`` is any number of folders, and every file where it is last; a folder that the last part matches means every
    file below it. Hidden names are passed over unless the pattern's part begins as they do.
    """
    parts = tuple(_Part(part) for part in pattern.split("/") if part not in {"", "."})
    hits: list[str] = []
    ignored: set[str] = set()
    for name in names:
        found, place = _match(tuple(name.split("/")), parts, 1)
        if found:
            hits.append(name)
        elif place:
            ignored.add("/".join(name.split("/")[:place]))
    return Selection(sorted(hits), ignored)


class _Part:
    def __init__(self, pattern: str) -> None:
        self.deep = pattern == "**"
        self.shown = pattern.startswith(_HIDDEN)
        self.matches: Callable[[str], object] = (
            (lambda _: True) if pattern in {"*", "**"} else re.compile(fnmatch.translate(pattern)).match
        )


_REST = (_Part("**"),)


def _match(names: tuple[str, ...], parts: tuple[_Part, ...], depth: int) -> tuple[bool, int]:
    """Return whether the path is meant, else the depth at which it is passed over (0: it is not looked at)."""
    part, rest = parts[0], parts[1:]
    place = 0
    if part.deep and rest:
        found, place = _match(names, rest, depth)
        if found:
            return True, 0
    last = len(names) == 1
    if not part.matches(names[0]) or (last and rest):
        return False, place
    if names[0].startswith(_HIDDEN) and not part.shown:
        return False, depth
    if last:
        return (False, depth) if is_marker(names[0]) else (True, 0)
    found, below = _match(names[1:], parts if part.deep else rest or _REST, depth + 1)
    return found, below or place
