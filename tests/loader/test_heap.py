"""A worker's memory comes from one heap, whose free pages can be given back."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.loader.heap import ARROW_POOL, KEEP_BYTES, MALLOPT_ARENA_MAX, MALLOPT_TRIM_THRESHOLD, Heap
from tests.corpora import write_records
from tests.streams import CACHE, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif("mimalloc" not in pa.supported_memory_backends(), reason="this Arrow has no pool of its own"),
]


def not_of_arrows_own_pool(record: dict[str, Any]) -> dict[str, Any]:
    """Pass records on; fail where reading them took memory of a pool of which nothing is given back."""
    held = pa.mimalloc_memory_pool().max_memory()
    if held:
        raise RuntimeError(f"Arrow took {held:,} bytes from its own pool")
    return record


@pytest.mark.processes
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_arrow_reads_parquet_on_the_workers_heap(tmp_path: Path, tokenizer: Any, method: str) -> None:
    write_records("parquet", tmp_path / "0.parquet", [{"text": f"text {i} " * 50} for i in range(200)])
    config = StreamConfig([Source(str(tmp_path), map=not_of_arrows_own_pool)], tokenizer, seq_len=64, epochs=1)
    loader = StreamLoader(config, 4, num_workers=1, cache_dir=CACHE, start_method=method)
    assert len(take(loader)) > 10
    loader.close()


class Libc:
    """A C library that notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[int, int] = {}

    def mallopt(self, option: int, value: int) -> None:
        self.told[option] = value


@pytest.fixture
def libc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Libc]:
    """Put a library in the place of this process's own, whose Arrow stays as it is."""
    library = Libc()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setenv(ARROW_POOL, "")  # so that what the heap sets is undone
    monkeypatch.delenv(ARROW_POOL)
    before = pa.default_memory_pool()
    yield library
    pa.set_memory_pool(before)


@pytest.mark.parametrize("threads", [1, 4])
def test_there_is_an_arena_for_each_thread_of_the_engine(libc: Libc, threads: int) -> None:
    Heap(threads)
    assert libc.told[MALLOPT_ARENA_MAX] == threads
    assert libc.told[MALLOPT_TRIM_THRESHOLD] == KEEP_BYTES


def test_arrow_that_was_imported_before_allocates_there_too_as_far_as_it_can_be_told(libc: Libc) -> None:
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    Heap()
    assert pa.default_memory_pool().backend_name == "system"


def test_a_users_choice_of_arrows_pool_stands(libc: Libc, monkeypatch: pytest.MonkeyPatch) -> None:
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    monkeypatch.setenv(ARROW_POOL, "mimalloc")
    Heap()
    assert os.environ[ARROW_POOL] == "mimalloc"
    assert pa.default_memory_pool().backend_name == "mimalloc"


def test_a_library_without_such_calls_is_left_as_it_is(libc: Libc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr("streamfeed.loader.heap.collect_seldom", lambda: None)
    Heap().tick()
    assert not libc.told


def test_free_pages_are_given_back_from_time_to_time_and_not_with_every_message(
    libc: Libc, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, given = [100.0], []
    monkeypatch.setattr("streamfeed.loader.heap.monotonic", lambda: now[0])
    monkeypatch.setattr("streamfeed.loader.heap.give_back", lambda: given.append(now[0]))
    monkeypatch.setattr("streamfeed.loader.heap.collect_seldom", lambda: None)
    heap = Heap()
    for second in range(100, 170):
        now[0] = float(second)
        heap.tick()
    assert given == [130.0, 160.0]
