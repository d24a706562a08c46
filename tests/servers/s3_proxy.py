"""A server in front of an S3 server, with scripted faults: the real client against the real protocol, going wrong.

``GET`` and ``HEAD`` are of objects, ``LIST`` of buckets; the path is ``bucket/key`` (of a listing ``bucket/prefix``).
The ``Host`` header goes on as the client sent it, which its signature covers.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.faulty_handler import FaultyHandler, FaultyServer

if TYPE_CHECKING:
    from tests.servers.seaweed import Seaweed

__all__ = ["S3Proxy"]

_OWN = {"content-length", "connection", "transfer-encoding", "date", "server"}


class S3Proxy(FaultyServer):
    """The proxy of one S3 server."""

    def __init__(self, behind: Seaweed) -> None:
        self.behind = behind
        super().__init__(_Handler)

    @property
    def options(self) -> dict[str, object]:
        """``storage_options`` that lead through this proxy."""
        return self.behind.options_for(self.url)


class _Handler(FaultyHandler):
    front: S3Proxy

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        self._pass_on()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def _pass_on(self) -> None:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query)
        listing = self.command == "GET" and ("list-type" in query or "/" not in path.rstrip("/"))
        if listing:
            path = f"{path.rstrip('/')}/{query.get('prefix', [''])[0]}"
        size = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(size)
        if self.begin("LIST" if listing else self.command, path) is None:
            return
        answer = http.client.HTTPConnection("127.0.0.1", self.front.behind.port, timeout=60)
        try:
            answer.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                answer.putheader(name, value)
            answer.endheaders(sent)
            response = answer.getresponse()
            body = response.read()
        finally:
            answer.close()
        headers = {name: value for name, value in response.getheaders() if name.lower() not in _OWN}
        if self.command == "HEAD":
            headers["Content-Length"] = response.getheader("Content-Length") or "0"
        self.reply(response.status, headers, self.shortened(body))
