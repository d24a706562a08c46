"""An HTTP server on loopback over a folder: ranges, ETags, preconditions, listings as pages of links.

``server.script(...)`` makes its answers go wrong; the attributes of :class:`WebServer` make it one of the servers that
there are: without ranges, without ETags, with ``Content-Encoding``, with Apache's sort links. Below ``/signed/`` a URL
needs ``?X-Amz-Signature=``:data:`SIGNATURE` and answers GET alone, as a presigned URL does.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from email.utils import formatdate
from fnmatch import fnmatchcase
from html import escape
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, quote, unquote, urlsplit

from streamfeed.testing import Status
from tests.servers.faulty_handler import FaultyHandler, FaultyServer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SIGNATURE", "WebServer"]

SIGNATURE = "s3cretSignature"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class WebServer(FaultyServer):
    """The server of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.defaults()
        super().__init__(_Handler)

    def defaults(self) -> None:
        """Be a good server."""
        self.ranges = True
        """``False``: every GET is answered with the whole body and 200"""
        self.etags = True
        self.modified = True
        """whether there is a Last-Modified header"""
        self.apache = False
        self.encoded: dict[str, Literal["negotiated", "stored"]] = {}
        """By pattern of path. ``negotiated``: gzip for those who accept it, and then without ranges. ``stored``: the
        object is kept compressed (a ``.gz`` as it is) and always sent with ``Content-Encoding: gzip``."""

    def address(self, name: str) -> str:
        """Return the URL of a file or folder, quoted."""
        return f"{self.url}/{quote(name)}"

    def signed(self, name: str) -> str:
        """Return the signed URL of a file below ``signed/``."""
        return f"{self.address(name)}?X-Amz-Expires=60&X-Amz-Signature={SIGNATURE}"


class _Handler(FaultyHandler):
    front: WebServer

    def do_HEAD(self) -> None:  # noqa: N802 - the base class calls it so
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802
        path = unquote(urlsplit(self.path).path).lstrip("/")
        place = self.front.folder / path
        op = "HEAD" if self.command == "HEAD" else "LIST" if place.is_dir() else "GET"
        start, end = self._asked_range()
        if self.begin(op, path, start, end) is None:
            return
        if ".." in path.split("/") or not place.exists():
            self.refuse(Status(404, reason="NoSuchKey"))
        elif path.startswith("signed/") and not self._may():
            self.refuse(Status(403, reason="SignatureDoesNotMatch"))
        elif place.is_dir():
            self._list(place)
        else:
            self._file(place, path)

    def _asked_range(self) -> tuple[int | None, int | None]:
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        if not found:
            return None, None
        first, last = found.groups()
        return int(first) if first else None, int(last) + 1 if last and first else None

    def _may(self) -> bool:
        return self.command == "GET" and parse_qs(urlsplit(self.path).query).get("X-Amz-Signature") == [SIGNATURE]

    def _list(self, place: Path) -> None:
        links = ["../", *sorted(child.name + "/" * child.is_dir() for child in place.iterdir())]
        if self.front.apache:
            links = ["?C=N;O=D", "?C=M;O=A", *links]
        anchors = [f'<a href="{link if link[0] == "?" else quote(link)}">{escape(link)}</a><br>' for link in links]
        page = "<!DOCTYPE html><html><body>\n" + "\n".join(anchors) + "\n</body></html>"
        self.reply(200, {"Content-Type": "text/html; charset=utf-8"}, page.encode())

    def _file(self, place: Path, path: str) -> None:
        stat, data = place.stat(), place.read_bytes()
        tag = hashlib.md5(f"{stat.st_mtime_ns} {len(data)}".encode()).hexdigest()
        changed = self.changed()
        if changed is not None:
            data, tag = data if changed.content is None else changed.content, tag + "-changed"
        headers = {"Content-Type": "application/octet-stream"}
        headers |= {"ETag": f'"{tag}"'} if self.front.etags else {}
        headers |= {"Last-Modified": formatdate(stat.st_mtime, usegmt=True)} if self.front.modified else {}
        encoding = self._encoding(path)
        if encoding is not None:
            headers["Content-Encoding"] = "gzip"
            data = data if encoding == "stored" and path.endswith(".gz") else gzip.compress(data, 1, mtime=0)
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted not in {"*", headers.get("ETag")}:
            self.refuse(Status(412, reason="PreconditionFailed"))
        elif self.front.ranges and encoding != "negotiated":
            self._ranged(data, headers)
        else:
            self.reply(200, headers, self.shortened(data))

    def _encoding(self, path: str) -> str | None:
        accepts = "gzip" in self.headers.get("Accept-Encoding", "")
        for pattern, encoding in self.front.encoded.items():
            if fnmatchcase(path, pattern) and (encoding == "stored" or accepts):
                return encoding
        return None

    def _ranged(self, data: bytes, headers: dict[str, str]) -> None:
        headers["Accept-Ranges"] = "bytes"
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        since = self.headers.get("If-Range")
        if not found or not any(found.groups()) or (since is not None and since not in headers.values()):
            self.reply(200, headers, self.shortened(data))
            return
        first, last = found.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(len(data), int(last) + 1) if first and last else len(data)
        if start >= stop:
            headers["Content-Range"] = f"bytes */{len(data)}"
            self.reply(416, headers, b"", whole=True)
            return
        body = self.shortened(data[start:stop])
        headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(data)}"
        self.reply(206, headers, body)
