"""A web server on loopback for the shards of ``streamfeed.testing.generated``: ranges, ETags and the statuses of HTTP.

python scripts/generated_server.py --shards 3 --lines 16384      # says its address, then serves until it is ended
"""

from __future__ import annotations

import argparse
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from streamfeed.testing.generated import GeneratedFileSystem

RANGE = re.compile(r"bytes=(\d*)-(\d*)")
PIECE = 1 << 20


class GeneratedServer(ThreadingHTTPServer):
    """Serves ``/part-00000.jsonl`` and following; ``url`` is its address."""

    def __init__(self, fs: GeneratedFileSystem) -> None:
        self.fs = fs
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about readers that hang up, as they do with what they no longer need."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GeneratedServer

    def do_HEAD(self) -> None:
        self.answer(head=True)

    def do_GET(self) -> None:
        self.answer(head=False)

    def answer(self, *, head: bool) -> None:
        name = unquote(urlsplit(self.path).path).lstrip("/")
        entry = self.find(name)
        if entry is None:
            self.send_error(404)
            return
        size = int(entry["size"])
        asked = None if head else asked_range(self.headers.get("Range", ""), size)
        start, stop = asked or (0, size)
        if start >= stop:
            self.begin(416, 0, {"Content-Range": f"bytes */{size}"})
            return
        headers = {"Accept-Ranges": "bytes", "ETag": f'"{entry["ETag"]}"'}
        headers |= {"Content-Range": f"bytes {start}-{stop - 1}/{size}"} if asked else {}
        self.begin(206 if asked else 200, stop - start, headers)
        for offset in range(start, start if head else stop, PIECE):
            self.wfile.write(self.server.fs.cat_file(name, offset, min(stop, offset + PIECE)))

    def find(self, name: str) -> dict[str, Any] | None:
        """Return what the file system says of a shard; None for folders and for names that it does not have."""
        try:
            entry: dict[str, Any] = self.server.fs.info(name)
        except FileNotFoundError:
            return None
        return entry if entry["type"] == "file" and "/" not in name else None

    def begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(header, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def asked_range(header: str, size: int) -> tuple[int, int] | None:
    """Return the bytes ``[start, stop)`` that a Range header asks for; None where it asks for none that we know.

    As HTTP has it, a header that cannot be read is as good as none. A range that lies behind the end is empty.
    """
    found = RANGE.fullmatch(header.strip())
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        return None
    return int(first), min(size, int(last) + 1) if last else size


def main() -> None:
    from streamfeed.testing.generated import GeneratedFileSystem

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--lines", type=int, default=1 << 14)
    arguments = parser.parse_args()
    server = GeneratedServer(GeneratedFileSystem(shards=arguments.shards, lines=arguments.lines))
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
