"""URLs: what is local, and which part is the name."""

from __future__ import annotations

import re
from typing import NamedTuple

from streamfeed.redaction import redact

__all__ = ["Place", "is_remote", "name_of", "place_of", "redact"]

_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*(?:://.*?)?::)*[A-Za-z][A-Za-z0-9+.-]*://", re.DOTALL)
_WEB = ("http://", "https://")


class Place(NamedTuple):
    """A URL in three parts that make it again: ``path`` names the file, below what ``head`` and ``tail`` say.

    ``s3://bucket/a/x.jsonl`` is ``("s3://", "bucket/a/x.jsonl", "")``; of ``https://host/x?sig=1`` the path is ``/x``,
    since a query is part of the address and not of the name; of ``zip://x.jsonl::s3://bucket/a.zip`` it is ``x.jsonl``,
    and of ``simplecache::s3://bucket/x`` it is ``bucket/x``.
    """

    head: str
    path: str
    tail: str

    @property
    def url(self) -> str:
        """The URL."""
        return self.head + self.path + self.tail

    def at(self, path: str) -> str:
        """Return the URL of another ``path`` in the same place."""
        return self.head + path + self.tail


def is_remote(uri: str) -> bool:
    """Return whether ``uri`` is a URL of a store, and no path or ``file://`` URL of this machine."""
    return _REMOTE.match(uri) is not None and not uri.lower().startswith("file://")


def place_of(url: str) -> Place:
    """Take a URL apart; a local path is all path."""
    if not is_remote(url):
        return Place("", url, "")
    start = 0
    while "://" not in (bit := url[start:].partition("::")[0]):
        start += len(bit) + 2  # a cache in front of another store has no path of its own
    bit, chain, rest = url[start:].partition("::")
    scheme, _, path = bit.partition("://")
    head, tail = f"{url[:start]}{scheme}://", chain + rest
    if head.lower().endswith(_WEB):
        host, slash, path = path.partition("/")
        cut = min(path.find(mark) if mark in path else len(path) for mark in "?#")
        return Place(head + host, slash + path[:cut], path[cut:] + tail)
    return Place(head, path, tail)


def name_of(url: str) -> str:
    """Return the last part of the file's name, without a web address' query."""
    return place_of(url).path.rpartition("/")[2]
