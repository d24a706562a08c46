"""A worker's memory comes from one heap, whose free pages can be given back."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.loader import heap as heap_module
from streamfeed.loader.heap import Heap, arrow_on_the_heap
from tests.corpora import write_records
from tests.streams import CACHE, take

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)


def not_of_arrows_own_pool(record: dict[str, Any]) -> dict[str, Any]:
    """Pass records on; fail where reading them took memory of a pool of which nothing is given back."""
    held = pa.mimalloc_memory_pool().max_memory()
    if held:
        raise RuntimeError(f"Arrow took {held:,} bytes from its own pool")
    return record


@pytest.mark.processes
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_arrow_reads_parquet_on_the_workers_heap(tmp_path: Path, tokenizer: Any, method: str) -> None:
    if "mimalloc" not in pa.supported_memory_backends():
        pytest.skip("this Arrow has no such pool")
    write_records("parquet", tmp_path / "0.parquet", [{"text": f"text {i} " * 50} for i in range(200)])
    config = StreamConfig([Source(str(tmp_path), map=not_of_arrows_own_pool)], tokenizer, seq_len=64, epochs=1)
    loader = StreamLoader(config, 4, num_workers=1, cache_dir=CACHE, start_method=method)
    assert len(take(loader)) > 10
    loader.close()


def test_a_users_choice_of_arrows_pool_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    arrow_on_the_heap()
    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "jemalloc"


@pytest.mark.parametrize("threads", [1, 4])
def test_there_is_an_arena_for_each_thread_of_the_engine(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    told: dict[int, int] = {}

    class Libc:
        def mallopt(self, option: int, value: int) -> None:
            told[option] = value

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Libc())
    before = pa.default_memory_pool()
    try:
        Heap(threads)
        assert pa.default_memory_pool().backend_name == "system"
    finally:
        pa.set_memory_pool(before)
    assert told[heap_module.MALLOPT_ARENA_MAX] == threads
    assert told[heap_module.MALLOPT_TRIM_THRESHOLD] == heap_module.KEEP_BYTES


def test_where_the_library_has_no_such_calls_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    before = pa.default_memory_pool()
    try:
        heap = Heap()
    finally:
        pa.set_memory_pool(before)
    monkeypatch.setattr(heap_module, "collect_seldom", lambda: None)
    heap.tick()
