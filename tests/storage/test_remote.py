"""A remote file: the bytes of a local one, fetched in no larger and no more pieces than were asked for or expected."""

from __future__ import annotations

import gc
import io
import itertools
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import ReadError
from streamfeed.storage.fetch import LARGEST, SMALLEST, Block, Fetcher
from streamfeed.storage.remote import RemoteFile

KB = 1 << 10
MB = 1 << 20


class Bytes:
    """A store of one file that notes what is loaded."""

    def __init__(self, size: int) -> None:
        self.data = bytes(i * 7 % 251 for i in range(min(size, 1 << 16))) * (size // (1 << 16) + 1)
        self.data = self.data[:size]
        self.loads: list[tuple[int, int]] = []

    def load(self, start: int, stop: int) -> bytes:
        self.loads.append((start, stop))
        return self.data[start:stop]

    @property
    def loaded(self) -> int:
        return sum(stop - start for start, stop in self.loads)


def opened(size: int, fetcher: Fetcher | None = None) -> tuple[RemoteFile, Bytes]:
    store = Bytes(size)
    return RemoteFile(size, store.load, fetcher or Fetcher()), store


POSITIONS = st.integers(0, 3 * MB)
ACTIONS = st.one_of(
    st.tuples(st.just("seek"), POSITIONS, st.just(0)),
    st.tuples(st.just("read"), st.integers(0, MB), st.just(0)),
    st.tuples(st.just("at"), POSITIONS, st.integers(0, MB)),
    st.tuples(st.just("expect"), POSITIONS, POSITIONS),
)


@given(st.lists(ACTIONS, max_size=12), st.integers(0, 2 * MB), st.sampled_from([MB // 2, 4 * MB]))
def test_any_reads_and_expectations_give_the_bytes_of_a_local_file(
    actions: list[tuple[str, int, int]], size: int, budget: int
) -> None:
    fetcher = Fetcher(budget, threads=2)
    raw, store = opened(size, fetcher)
    local = io.BytesIO(store.data)
    for name, first, second in actions:
        if name == "seek":
            assert raw.seek(first) == local.seek(first)
        elif name == "read":
            assert raw.read(first) == local.read(first)
        elif name == "at":
            assert raw.read_at(first, second) == store.data[first : first + second]
        else:
            raw.expect(first, second)
        assert raw.tell() == local.tell()
    raw.close()
    settle(fetcher)
    assert fetcher.held == 0


def settle(fetcher: Fetcher) -> None:
    """Wait until the threads have nothing left: a block behind all others has been fetched."""
    for _ in range(8):
        last = Block(0, 0, lambda *_: b"", lambda _: None)
        fetcher.submit(last)
        last._settled.wait(10)


def test_a_range_is_fetched_once_in_blocks_that_grow_and_nothing_beyond_it() -> None:
    fetcher = Fetcher(64 * MB)
    raw, store = opened(12 * MB, fetcher)
    raw.expect(MB, 11 * MB)
    raw.seek(MB)
    assert raw.read(10 * MB) == store.data[MB : 11 * MB]
    raw.close()
    settle(fetcher)
    assert sorted(store.loads) == merged(store.loads)
    assert (min(store.loads)[0], max(store.loads)[1]) == (MB, 11 * MB)
    sizes = [stop - start for start, stop in sorted(store.loads)]
    assert sizes[:4] == [SMALLEST, 2 * SMALLEST, 4 * SMALLEST, 8 * SMALLEST]
    assert max(sizes) <= LARGEST


def merged(loads: list[tuple[int, int]]) -> list[tuple[int, int]]:
    ordered = sorted(loads)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ordered)), ordered
    return ordered


def test_what_is_not_expected_is_fetched_to_the_byte() -> None:
    raw, store = opened(MB)
    assert raw.read_at(MB - 100, 100) == store.data[-100:]
    assert raw.read_at(MB - 100, 1000) == store.data[-100:]
    raw.seek(512)
    assert raw.read(512) == store.data[512:1024]
    assert store.loads == [(MB - 100, MB), (MB - 100, MB), (512, 1024)]


def test_several_ranges_are_read_ahead_in_their_order_and_the_gaps_between_them_are_not() -> None:
    fetcher = Fetcher(64 * MB)
    raw, store = opened(4 * MB, fetcher)
    for start in (0, MB, 3 * MB):
        raw.expect(start, start + 100 * KB)
        raw.expect(start, start + 100 * KB)
    settle(fetcher)
    assert sorted(store.loads) == [(0, 100 * KB), (MB, MB + 100 * KB), (3 * MB, 3 * MB + 100 * KB)]
    for start in (0, MB, 3 * MB):
        assert raw.read_at(start, 100 * KB) == store.data[start : start + 100 * KB]
    assert len(store.loads) == 3
    raw.close()


def test_files_that_are_open_share_the_budget_and_none_is_exceeded() -> None:
    fetcher = Fetcher(8 * MB, threads=4)
    files = [opened(16 * MB, fetcher) for _ in range(4)]
    for raw, _ in files:
        raw.expect(0, 16 * MB)
    settle(fetcher)
    assert fetcher.held <= 8 * MB
    assert all(store.loaded >= SMALLEST for _, store in files), "one file took it all"
    for raw, _ in files:
        raw.close()
    assert fetcher.held == 0


def test_a_reader_that_waits_is_served_though_the_budget_is_spent() -> None:
    fetcher = Fetcher(SMALLEST)
    assert fetcher.reserve(SMALLEST)
    raw, store = opened(2 * MB, fetcher)
    raw.expect(0, 2 * MB)
    assert store.loads == []
    assert raw.read(2 * MB) == store.data
    assert all(stop - start <= SMALLEST for start, stop in store.loads)
    raw.close()
    assert fetcher.held == SMALLEST


def test_an_error_comes_where_its_bytes_are_read_and_not_before() -> None:
    store = Bytes(MB)

    def load(start: int, stop: int) -> bytes:
        if stop > SMALLEST:
            raise ReadError("x", f"byte {start}", "failed")
        return store.load(start, stop)

    fetcher = Fetcher()
    raw = RemoteFile(MB, load, fetcher)
    raw.expect(0, MB)
    settle(fetcher)
    assert raw.read(SMALLEST) == store.data[:SMALLEST]
    with pytest.raises(ReadError, match=f"byte {SMALLEST}"):
        raw.read(1)
    raw.close()
    settle(fetcher)
    assert fetcher.held == 0


def test_a_block_dropped_while_it_is_fetched_frees_its_budget_when_it_is_there() -> None:
    entered, go = threading.Event(), threading.Event()
    freed: list[int] = []

    def slow(start: int, stop: int) -> bytes:
        entered.set()
        go.wait(10)
        return bytes(stop - start)

    fetcher = Fetcher(threads=1)
    block = Block(0, 100, slow, freed.append)
    fetcher.submit(block)
    entered.wait(10)
    block.drop()
    assert freed == []
    go.set()
    settle(fetcher)
    assert freed == [100]


def test_a_block_that_is_dropped_before_its_turn_is_never_fetched() -> None:
    store, freed = Bytes(100), list[int]()
    block = Block(0, 100, store.load, freed.append)
    block.drop()
    block.run()
    assert (store.loads, freed) == ([], [100])


def test_threads_start_with_the_first_block_and_end_with_the_fetcher() -> None:
    before = set(threading.enumerate())
    fetcher = Fetcher(threads=3)
    assert set(threading.enumerate()) == before
    settle(fetcher)
    threads = set(threading.enumerate()) - before
    assert 1 <= len(threads) <= 3
    assert all(thread.daemon for thread in threads)
    gone = weakref.ref(fetcher)
    del fetcher
    gc.collect()
    assert gone() is None
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_seeking_before_the_start_is_an_error_and_closing_twice_is_none() -> None:
    fetcher = Fetcher()
    raw, _ = opened(10, fetcher)
    assert raw.seek(-3, io.SEEK_END) == 7
    assert raw.seek(1, io.SEEK_CUR) == 8
    with pytest.raises(ValueError, match="-1"):
        raw.seek(-1)
    raw.close()
    raw.close()
    assert fetcher.share == fetcher._budget
