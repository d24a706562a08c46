"""Clients are made here, once, and again when a credential expires or a process was forked; calls end in time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

from streamfeed.errors import ReadError
from streamfeed.stats import ReadStats
from streamfeed.storage.client import Client, Clients, run_sync
from streamfeed.storage.port_any import AnyPort
from streamfeed.storage.retry import Retrier, RetryPolicy
from streamfeed.storage.store import Store
from streamfeed.storage.urls import place_of


class HangingFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Its first ``hangs`` reads never end; it notes which of them were cancelled."""

    protocol = "hanging"
    cachable = False

    def __init__(self, hangs: int = 0, log: list[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.log = [] if log is None else log
        self.hangs = hangs

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": 10, "type": "file"}

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        self.log.append("read")
        if self.log.count("read") <= self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.log.append("cancelled")
        return b"0123456789"[start:end]


class WholeFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Answers every range with the whole file, as a store does that unpacks what it sends."""

    protocol = "whole"
    cachable = False

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": 10, "type": "file"}

    async def _cat_file(self, path: str, **_: Any) -> bytes:
        return b"0123456789"


fsspec.register_implementation("hanging", HangingFileSystem)
fsspec.register_implementation("whole", WholeFileSystem)


def store_with(options: dict[str, Any], stats: ReadStats, attempts: int = 8) -> Store:
    policy = RetryPolicy(attempts=attempts, stall_s=0.05)
    return Store(options, stats, retrier=Retrier(policy, stats, sleep=lambda _: None))


@pytest.mark.parametrize("hangs", [1, 3, 7])
def test_a_read_that_hangs_is_cancelled_and_made_again(hangs: int) -> None:
    log: list[str] = []
    stats = ReadStats()
    file = store_with({"hangs": hangs, "log": log}, stats).file("hanging://x", 10)
    with file.open() as raw:
        assert raw.read(10) == b"0123456789"
    assert stats.retries == hangs
    assert log.count("read") == hangs + 1
    assert log.count("cancelled") == hangs, "an abandoned read must not go on"


def test_a_read_that_always_hangs_ends_with_an_error_that_says_so() -> None:
    file = store_with({"hangs": 99}, ReadStats(), attempts=2).file("hanging://x", 10)
    with file.open() as raw, pytest.raises(ReadError, match=r"hanging://x, byte 0: .*2 attempts.*timed out"):
        raw.read(10)


def test_a_store_that_ignores_ranges_is_an_error_and_never_other_bytes() -> None:
    with Store().file("whole://x", 10).open() as raw:
        assert raw.read_at(0, 10) == b"0123456789"
        with pytest.raises(ReadError, match=r"whole://x, byte 4: .*1 attempt.*more bytes than it was asked for"):
            raw.read_at(4, 3)


def test_a_blocking_call_that_hangs_is_abandoned() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError):
        run_sync(never.wait, 0.02)
    never.set()
    assert run_sync(lambda: "answer", 10) == "answer"
    with pytest.raises(KeyError):
        run_sync(lambda: dict[str, str]()["x"], 10)


def test_shards_of_one_place_share_a_client_and_other_places_have_their_own() -> None:
    clients = Clients({})
    first, path = clients.of("memory://a/x y.jsonl")
    assert path == "/a/x y.jsonl"
    assert clients.of("memory://b/z")[0] is first
    assert clients.of("zip://x::memory://a.zip")[0] is clients.of("zip://y::memory://a.zip")[0]
    assert clients.of("zip://x::memory://a.zip")[0] is not clients.of("zip://x::memory://b.zip")[0]
    assert clients.of("https://h/x?sig=1")[0] is clients.of("https://other/y")[0]
    assert clients.of("https://h/x?sig=1#f")[1] == "https://h/x?sig=1#f"


def test_a_client_is_renewed_once_for_all_who_found_its_credential_expired() -> None:
    client = Client(place_of("memory://x"), {})
    port, made = client.port()
    assert client.port() == (port, made)
    client.renew(made)
    fresh, number = client.port()
    assert fresh is not port
    client.renew(made)  # another thread, late
    assert client.port() == (fresh, number)


def test_no_client_is_shared_with_the_rest_of_the_process() -> None:
    port, _ = Client(place_of("memory://x"), {}).port()
    assert isinstance(port, AnyPort)
    assert port._fs is not fsspec.filesystem("memory")


def test_a_forked_process_makes_its_own_client_and_leaves_the_inherited_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(place_of("memory://x"), {})
    port, made = client.port()
    client._lock.acquire()  # as a thread of the parent may have held it
    monkeypatch.setattr(os, "getpid", lambda: -1)
    other, number = client.port()
    assert (other is port, number) == (False, made + 1)
    assert [live.port for live in client._foreign] == [port], "closing it would close the parent's connections"


def test_options_are_left_as_they_are() -> None:
    options: dict[str, Any] = {"memory": {"global_store": True}, "zip": {}}
    Client(place_of("simplecache::memory://x"), options).port()
    assert options == {"memory": {"global_store": True}, "zip": {}}


def test_s3_tries_once_and_caches_no_listing() -> None:
    options = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1", "config_kwargs": {"read_timeout": 3}}
    port, _ = Client(place_of("s3://bucket/x"), options).port()
    fs = port._fs  # type: ignore[attr-defined]
    assert fs.retries == 1
    assert fs.config_kwargs == {"read_timeout": 3, "retries": {"total_max_attempts": 1}}
    assert not fs.dircache.use_listings_cache
    assert options["config_kwargs"] == {"read_timeout": 3}


def test_local_files_are_listed_and_read_without_any_remote_library() -> None:
    code = """if True:
        import sys, streamfeed.loader.worker
        from streamfeed.storage.store import Store
        store = Store({"key": "k"})
        listing = store.list([sys.argv[1]])
        store.file(listing.urls[0], listing.sizes[0], listing.versions[0]).open().read(3)
        print(*{name.partition(".")[0] for name in sys.modules})"""
    done = subprocess.run([sys.executable, "-c", code, __file__], check=True, capture_output=True, text=True)
    assert not set(done.stdout.split()) & {"fsspec", "aiohttp", "asyncio", "tenacity", "s3fs", "botocore"}
