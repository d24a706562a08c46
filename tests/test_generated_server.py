"""The web server of scripts/endless.py answers as HTTP has it, whatever is asked."""

from __future__ import annotations

import http.client
import threading
from typing import TYPE_CHECKING

import pytest

from scripts.generated_server import GeneratedServer
from streamfeed.storage.store import Store
from streamfeed.testing.generated import LINE_BYTES, GeneratedFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES = 300  # more than a piece of an answer
SIZE = LINES * LINE_BYTES


@pytest.fixture
def server() -> Iterator[GeneratedServer]:
    server = GeneratedServer(GeneratedFileSystem(shards=2, lines=LINES))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server: GeneratedServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers["Content-Range"]
    connection.close()
    return found


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    ["/part-{00000..00001}.jsonl", "/part-%7B00000..00001%7D.jsonl", "/part-00002.jsonl", "/", "/x/part-00000.jsonl"],
)
def test_a_name_that_is_no_shard_is_not_found(server: GeneratedServer, method: str, path: str) -> None:
    assert ask(server, path, method, Range="bytes=0-9")[0] == 404


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [("0-9", 0, 10), ("5000-", 5000, SIZE), ("-7", SIZE - 7, SIZE), (f"{SIZE - 3}-{SIZE + 99}", SIZE - 3, SIZE)],
)
def test_a_range_is_those_bytes(server: GeneratedServer, header: str, start: int, stop: int) -> None:
    body = server.fs.cat_file("part-00001.jsonl", start, stop)
    found = ask(server, "/part-00001.jsonl", Range=f"bytes={header}")
    assert found == (206, body, f"bytes {start}-{stop - 1}/{SIZE}")


@pytest.mark.parametrize("header", ["", "bytes=-", "bytes=9-3", "bytes=x-y", "bytes=0-1,4-5", "lines=1-2"])
def test_a_range_that_cannot_be_read_is_as_good_as_none(server: GeneratedServer, header: str) -> None:
    assert ask(server, "/part-00001.jsonl", Range=header) == (200, server.fs.cat_file("part-00001.jsonl"), None)


@pytest.mark.parametrize("header", [f"{SIZE}-", f"{SIZE + 5}-{SIZE + 9}", "-0"])
def test_a_range_behind_the_end_cannot_be_satisfied(server: GeneratedServer, header: str) -> None:
    assert ask(server, "/part-00001.jsonl", Range=f"bytes={header}") == (416, b"", f"bytes */{SIZE}")


def test_a_store_lists_a_pattern_of_shards_at_once(server: GeneratedServer) -> None:
    listing = Store({}).list([f"{server.url}/part-{{00000..00001}}.jsonl"])
    assert listing.sizes == [SIZE, SIZE]
