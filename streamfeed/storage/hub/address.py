"""``hf://datasets/`` addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from streamfeed.errors import SourceError

__all__ = ["PREFIX", "HubAddress"]

PREFIX = "hf://datasets/"

_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_SPECIAL = re.compile(r"refs/(?:convert/[\w.-]+|pr/\d+)(?=/|$)")  # the revisions whose names hold a slash, unquoted
_FORM = "an address on the Hub is hf://datasets/org/name, or hf://datasets/org/name@revision/path"


@dataclass(frozen=True)
class HubAddress:
    """A dataset repository ``org/name``, a revision of it (None: its main branch), and a path in it, perhaps empty.

    The path is taken as it is: ``%`` and ``#`` are characters of names, ``*``, ``?``, ``[`` and ``{`` of patterns.
    """

    repo: str
    revision: str | None = None
    path: str = ""

    @classmethod
    def parse(cls, uri: str) -> HubAddress:
        """Take ``hf://datasets/org/name[@revision][/path]`` apart; a ``/`` in a revision is written ``%2F``.

        Raises :class:`~streamfeed.errors.SourceError` for anything else.
        """
        parts = uri.removeprefix(PREFIX).split("/", 2)
        if not uri.startswith(PREFIX) or len(parts) < 2:
            raise SourceError(f"{uri}: {_FORM}")
        name, at, revision = parts[1].partition("@")
        path = parts[2] if len(parts) > 2 else ""
        if at and path and (special := _SPECIAL.match(f"{revision}/{path}")):
            revision, path = special[0], f"{revision}/{path}"[special.end() + 1 :]
        if not _NAME.fullmatch(f"{parts[0]}/{name}") or (at and not revision):
            raise SourceError(f"{uri}: {_FORM}")
        return cls(f"{parts[0]}/{name}", unquote(revision) or None, path.strip("/"))

    @property
    def url(self) -> str:
        """The address as a URL that :meth:`parse` takes."""
        revision = f"@{quote(self.revision, safe='')}" if self.revision else ""
        return f"{PREFIX}{self.repo}{revision}" + (f"/{self.path}" if self.path else "")

    def at(self, path: str) -> HubAddress:
        """Return the address of another path at the same revision."""
        return replace(self, path=path)
