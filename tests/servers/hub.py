"""A Hugging Face Hub on loopback that the real clients talk to, with a log of requests and scripted faults.

Plays what reading datasets needs: info of a revision, trees in pages, paths-info, files by HEAD and GET with ranges.
Large files are handed out by a redirect to a signed URL of another path, as the Hub does. What is private or missing is
answered with the Hub's own error codes.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.servers.hub_environment import ENDPOINT, SOCKET
from tests.servers.hub_repos import Blob, Missing, Repo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SIGNATURE", "TOKEN", "Asked", "Fault", "Hub"]

TOKEN = "hf_secretTokenOfTheTests"
"""The token that opens private repositories."""

SIGNATURE = "signedAndSecret"
"""What the URLs of large files are signed with."""

_API = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?")
_RESOLVE = re.compile(r"/(?:api/)?(?:resolve-cache/)?datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_LARGE = re.compile(r"/large/([^/]+/[^/]+)/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Asked:
    """One request as the log keeps it."""

    method: str
    kind: str
    """``info``, ``tree``, ``paths-info``, ``resolve``, ``large`` or ``other``"""
    path: str
    status: int
    range: tuple[int, int] | None
    """the bytes asked for, ``[start, stop)``"""


@dataclass
class Fault:
    """The next ``times`` requests of ``kind`` whose path contains ``part``, behind the first ``after``, fail."""

    kind: str
    status: int
    times: int = 1
    after: int = 0
    part: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Hub:
    """The server; made once a process, since the clients learn its address when they are imported."""

    endpoint = ENDPOINT

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(SOCKET.getsockname(), _handler(self), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = SOCKET
        self._server.daemon_threads = True
        self._server.server_activate()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.reset()

    def reset(self) -> None:
        """Forget repositories, faults and the log."""
        self.repos: dict[str, Repo] = {}
        self.page = 1000
        self.log: list[Asked] = []
        self.faults: list[Fault] = []

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def repo(self, name: str, files: Mapping[str, bytes | str] | None = None, **options: Any) -> Repo:
        """Make a repository, with a first commit if there are ``files``."""
        made = self.repos[name] = Repo(name, **options)
        if files is not None:
            made.commit(files)
        return made

    def count(self, kind: str, method: str | None = None) -> int:
        """Return how many requests of a kind came in."""
        return sum(asked.kind == kind and method in {None, asked.method} for asked in self.log)

    def note(self, asked: Asked) -> None:
        """Write one request to the log."""
        with self._lock:
            self.log.append(asked)

    def fault(self, kind: str, path: str) -> Fault | None:
        """Return the fault that this request is to meet, and count it."""
        with self._lock:
            for fault in self.faults:
                if fault.kind == kind and fault.part in path and fault.times:
                    if fault.after:
                        fault.after -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def readable(self, name: str, authorization: str) -> Repo:
        """Return a repository that this request may read."""
        known = authorization == f"Bearer {TOKEN}"
        if authorization and not known:
            raise Missing("", "Invalid credentials in Authorization header", 401)
        repo = self.repos.get(name)
        if repo is None or (repo.private and not known):
            raise Missing("RepoNotFound", "Repository not found", 404 if known else 401)
        return repo


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"hub": hub})


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: there is a log of its own."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        kind, reply = self._route(parts.path)
        fault = self.hub.fault(kind, unquote(self.path))
        try:
            if fault is not None:
                self._send(kind, fault.status, b"slow down", {"Content-Type": "text/plain", **fault.headers})
            else:
                reply(parse_qs(parts.query or body))
        except Missing as error:
            headers = {"X-Error-Message": error.message} | ({"X-Error-Code": error.code} if error.code else {})
            self._send(kind, error.status, json.dumps({"error": error.message}).encode(), headers)

    def _route(self, path: str) -> tuple[str, Callable[[dict[str, list[str]]], None]]:
        if found := _API.fullmatch(path):
            name, what, revision, below = (unquote(group or "") for group in found.groups())
            kind = {"": "info", "revision": "info"}.get(what, what)
            return kind, lambda query: self._api(kind, name, revision or "main", below, query)
        if found := _RESOLVE.fullmatch(path):
            name, revision, file = map(unquote, found.groups())
            return "resolve", lambda _: self._resolve(name, revision, file)
        if found := _LARGE.fullmatch(path):
            name, revision, file = map(unquote, found.groups())
            return "large", lambda query: self._large(name, revision, file, query)
        return "other", lambda _: self._send("other", 404, b"no such page", {})

    def _api(self, kind: str, name: str, revision: str, below: str, query: dict[str, list[str]]) -> None:
        repo = self.hub.readable(name, self.headers.get("Authorization") or "")
        headers: dict[str, str] = {}
        answer: object
        if kind == "info":
            answer = repo.info(revision)
        elif kind == "tree":
            entries = repo.tree(revision, below, recursive=query.get("recursive", [""])[0].lower() in {"true", "1"})
            start = int(query.get("cursor", ["0"])[0])
            stop = start + self.hub.page
            answer = entries[start:stop]
            if stop < len(entries):
                flags = f"recursive={query.get('recursive', ['false'])[0]}&expand=false&cursor={stop}"
                headers["Link"] = f'<{ENDPOINT}{urlsplit(self.path).path}?{flags}>; rel="next"'
        else:
            entries = repo.tree(revision, "", recursive=True)
            answer = [entry for entry in entries if entry["path"] in query.get("paths", [])]
        self._send(kind, 200, json.dumps(answer).encode(), {"Content-Type": "application/json", **headers})

    def _resolve(self, name: str, revision: str, file: str) -> None:
        repo = self.hub.readable(name, self.headers.get("Authorization") or "")
        sha = repo.sha(revision)
        blob = repo.blob(sha, file)
        headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if blob.large:
            where = f"{ENDPOINT}/large/{name}/{sha}/{quote(file)}?X-Amz-Signature={SIGNATURE}"
            linked = {"X-Linked-Size": str(len(blob.data)), "X-Linked-Etag": f'"{blob.etag}"', "Location": where}
            self._send("resolve", 302, b"", headers | linked)
        else:
            self._bytes("resolve", blob, headers)

    def _large(self, name: str, sha: str, file: str, query: dict[str, list[str]]) -> None:
        if query.get("X-Amz-Signature") != [SIGNATURE] or name not in self.hub.repos:
            self._send("large", 403, b"<Error><Code>AccessDenied</Code></Error>", {})
        else:
            self._bytes("large", self.hub.repos[name].blob(sha, file), {"Accept-Ranges": "bytes"})

    def _bytes(self, kind: str, blob: Blob, headers: dict[str, str]) -> None:
        total = len(blob.data)
        headers = {"ETag": f'"{blob.etag}"', "Content-Type": "application/octet-stream", **headers}
        asked = self._range(total)
        if asked is None:
            self._send(kind, 200, blob.data, headers)
        elif asked[0] >= total:
            self._send(kind, 416, b"", {"Content-Range": f"bytes */{total}"})
        else:
            start, stop = asked
            span = {"Content-Range": f"bytes {start}-{stop - 1}/{total}"}
            self._send(kind, 206, blob.data[start:stop], headers | span)

    def _range(self, total: int | None = None) -> tuple[int, int] | None:
        found = _RANGE.fullmatch(self.headers.get("Range") or "")
        if found is None:
            return None
        stop = int(found[2]) + 1 if found[2] else (total if total is not None else -1)
        return int(found[1]), stop if total is None else min(stop, total)

    def _send(self, kind: str, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.hub.note(Asked(str(self.command), kind, unquote(urlsplit(self.path).path), status, self._range()))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
