"""A process that is started after its parent has listed and read a remote source lists and reads it too."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.storage.store import Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.servers.seaweed import Bucket
    from tests.servers.web import WebServer

pytestmark = pytest.mark.processes

WATCHDOG_S = 30


def read_all(store: Store, uri: str) -> list[bytes]:
    listing = store.list([uri])
    found = []
    for url, size, version in zip(listing.urls, listing.sizes, listing.versions, strict=True):
        with store.file(url, size, version).open() as raw:
            raw.expect(0, size)
            found.append(raw.read(size))
    return found


def child(pipe: Connection, uri: str, options: dict[str, Any], inherited: Store | None) -> None:
    found = [read_all(store, uri) for store in (Store(options), inherited) if store is not None]
    pipe.send(found)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("kind", ["http", "s3"])
def test_reading_works_in_a_process_of_any_kind(request: pytest.FixtureRequest, method: str, kind: str) -> None:
    data = [bytes([n]) * 300_000 for n in range(3)]
    if kind == "http":
        web: WebServer = request.getfixturevalue("web")
        (web.folder / "in").mkdir()
        for n, one in enumerate(data):
            (web.folder / "in" / f"{n}.jsonl").write_bytes(one)
        uri, options = web.address("in") + "/", dict[str, Any]()
    else:
        bucket: Bucket = request.getfixturevalue("bucket")
        for n, one in enumerate(data):
            bucket.put(f"in/{n}.jsonl", one)
        uri, options = f"{bucket.url}/in", bucket.options
    store = Store(options)
    assert read_all(store, uri) == data
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    inherited = store if method == "fork" else None
    process = context.Process(target=child, args=(theirs, uri, options, inherited), daemon=True)  # type: ignore[attr-defined]
    process.start()
    try:
        assert ours.poll(WATCHDOG_S), "the process hangs"
        assert ours.recv() == [data] * (2 if inherited else 1)
    finally:
        process.kill()
        process.join()
    assert read_all(store, uri) == data, "the parent's own client still works"
