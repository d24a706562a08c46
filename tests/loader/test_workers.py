"""Real worker processes: the same batches, the same states, and what becomes of their failures."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import fsspec.asyn
import psutil
import pytest

from streamfeed import StreamConfig, StreamLoader
from streamfeed.encode.engines import build_engine
from streamfeed.encode.proof import prove
from streamfeed.encode.tokenizer import load_tokenizer
from streamfeed.errors import ConfigError, RecordError, WorkerError
from tests.streams import CACHE, Batches, corpus, equal, stream, take, take_into
from tests.tokenizers_for_tests import standard_library_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = [pytest.mark.processes, pytest.mark.timeout(30)]

METHODS = ("forkserver", "spawn", "fork")


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any) -> StreamConfig:
    corpus(tmp_path, "jsonl", [40, 25, 33], words=40)
    return stream(tmp_path, "jsonl", tokenizer, lanes=6)


@pytest.fixture
def load(config: StreamConfig) -> Iterator[Callable[..., StreamLoader]]:
    """Make loaders that are closed when the test ends."""
    loaders: list[StreamLoader] = []

    def make(num_workers: int = 0, batch_size: int = 4, **options: Any) -> StreamLoader:
        changed = options.pop("config", config)
        loaders.append(StreamLoader(changed, batch_size, num_workers=num_workers, cache_dir=CACHE, **options))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


def processes(loader: StreamLoader) -> list[psutil.Process]:
    return [psutil.Process(worker._process.pid) for worker in loader._crew.workers]


def check_gone(workers: Sequence[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(workers, 5)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def use_everything(tokenizer: Any) -> None:
    """Encode with both engines on all their threads, and start fsspec's IO thread, as a trainer may have done."""
    texts = list(standard_library_texts())
    tokenizer(texts)
    spec = load_tokenizer(tokenizer)
    build_engine(spec, prove(spec, CACHE)).encode(texts)
    assert fsspec.asyn.sync(fsspec.asyn.get_loop(), asyncio.sleep, 0, timeout=10) is None


@pytest.mark.parametrize("method", METHODS)
def test_workers_give_the_batches_of_none_after_the_trainer_used_tokenizer_and_file_system(
    load: Callable[..., StreamLoader], tokenizer: Any, method: str
) -> None:
    use_everything(tokenizer)
    reference = take(load(), 40)
    for workers in (1, 2, 3):
        assert equal(take(load(workers, start_method=method), 40), reference), workers


def test_a_start_method_that_does_not_exist_is_refused(load: Callable[..., StreamLoader]) -> None:
    with pytest.raises(ConfigError, match=r"start_method must be one of .*forkserver.*, got 'threads'"):
        load(1, start_method="threads")


def test_a_state_in_the_middle_of_read_ahead_resumes_on_any_number_of_workers(
    load: Callable[..., StreamLoader],
) -> None:
    reference = take(load(), 60)
    two = load(2)
    assert equal(take(two, 23), reference[:23])  # by now the workers are megabytes ahead
    state, earlier = two.state_dict(), two.state_dict(batches=20)
    assert state["rows"] == 92
    for workers in (3, 0):
        other = load(workers)
        other.load_state_dict(state)
        assert equal(take(other, 30), reference[23:53])
    two.load_state_dict(earlier)
    assert equal(take(two, 5), reference[20:25])
    assert two.state_dict()["rows"] == 100


def test_ranks_with_workers_hand_out_the_rows_of_one_rank(load: Callable[..., StreamLoader]) -> None:
    reference = take(load(batch_size=4), 20)
    ranks = [take(load(2, 2, rank=rank, world_size=2), 20) for rank in range(2)]
    for whole, *parts in zip(reference, *ranks, strict=True):
        for rank, part in enumerate(parts):
            assert (whole["input_ids"][rank::2] == part["input_ids"]).all()


def test_a_worker_killed_while_idle_is_reported_and_the_loader_goes_on(load: Callable[..., StreamLoader]) -> None:
    reference = take(load(), 400)
    loader = load(2)
    found = take(loader, 3)
    victim, other = processes(loader)
    victim.kill()
    began = time.monotonic()
    with pytest.raises(WorkerError, match=rf"worker 0 \(pid {victim.pid}\) died: killed by SIGKILL"):
        take_into(found, loader)
    assert time.monotonic() - began < 5
    check_gone([victim, other])
    assert equal(found, reference[: len(found)])
    state = loader.state_dict()
    assert state["rows"] == 4 * len(found)
    assert loader.state_dict(batches=1)["rows"] == 4
    assert equal(take(loader, 3), reference[len(found) : len(found) + 3])  # iterating goes on by itself
    loader.load_state_dict(state)
    assert equal(take(loader, 3), reference[len(found) : len(found) + 3])


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_a_worker_killed_while_the_consumer_waits_is_reported(load: Callable[..., StreamLoader], method: str) -> None:
    loader = load(2, start_method=method)
    take(loader, 1)
    other, victim = processes(loader)
    victim.suspend()  # so that the consumer uses up what is there, and waits
    killed = []

    def kill() -> None:
        killed.append(time.monotonic())
        victim.kill()

    threading.Timer(0.5, kill).start()
    with pytest.raises(WorkerError, match=rf"worker 1 \(pid {victim.pid}\) died: killed by SIGKILL"):
        take(loader)
    assert time.monotonic() - killed[0] < 5
    check_gone([other, victim])


def test_a_worker_that_does_not_react_is_ended_by_force(load: Callable[..., StreamLoader]) -> None:
    loader = load(2)
    take(loader, 1)
    workers = processes(loader)
    for worker in workers:
        worker.suspend()
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 3
    check_gone(workers)


def test_a_bad_record_arrives_as_itself_behind_the_batches_in_front_of_it(
    load: Callable[..., StreamLoader], tmp_path: Path, tokenizer: Any
) -> None:
    shard = tmp_path / "bad" / "000.jsonl"
    corpus(tmp_path / "bad", "jsonl", [90], words=40)
    lines = shard.read_bytes().splitlines(keepends=True)
    lines[70] = b'{"text": "no end}\n'
    shard.write_bytes(b"".join(lines))
    bad = stream(tmp_path / "bad", "jsonl", tokenizer, lanes=1, shuffle_buffer=4)
    here, there = load(config=bad), load(1, config=bad)
    expected: Batches = []
    found: Batches = []
    with pytest.raises(RecordError):
        take_into(expected, here)
    with pytest.raises(RecordError) as caught:
        take_into(found, there)
    assert len(found) > 5
    assert equal(found, expected)
    assert "000.jsonl" in caught.value.shard
    assert caught.value.where == f"byte {sum(map(len, lines[:70]))}"
    (note,) = caught.value.__notes__
    assert note.startswith("raised in worker 0:\nTraceback")
    assert there.state_dict()["rows"] == 4 * len(found)
    assert not there._crew.workers


def engine_that_raises(error: Exception) -> Callable[..., Any]:
    class Engine:
        name = "broken"

        def encode(self, texts: Sequence[str]) -> NoReturn:
            raise error

    return lambda *_, **__: Engine()


class _LocalError(Exception):
    def __reduce__(self) -> NoReturn:
        raise TypeError("does not pickle")


@pytest.mark.parametrize("error", [_LocalError("boo"), EOFError("boo"), ConnectionResetError("boo")], ids=repr)
def test_any_other_exception_of_a_worker_arrives_as_text(
    load: Callable[..., StreamLoader], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    loader = load(2, start_method="fork")
    with monkeypatch.context() as patch:
        patch.setattr("streamfeed.encode.objectives.build.build_engine", engine_that_raises(error))
        with pytest.raises(WorkerError, match=rf"worker \d raised .*{type(error).__name__}: boo") as caught:
            take(loader, 1)
    assert "in encode" in caught.value.details
    assert equal(take(loader, 2), take(load(), 2))


def test_a_worker_that_cannot_begin_says_why(
    load: Callable[..., StreamLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise MemoryError("no room for the engine")

    loader = load(1, start_method="fork")
    monkeypatch.setattr("streamfeed.encode.objectives.build.build_engine", fail)
    with pytest.raises(WorkerError, match="MemoryError: no room for the engine"):
        take(loader, 1)


def test_two_loaders_of_forked_workers_stop_one_by_one(load: Callable[..., StreamLoader]) -> None:
    """The second loader's workers hold copies of the first one's pipes: that must not keep its workers waiting."""
    one, two = load(1, start_method="fork"), load(1, start_method="fork")
    take(one, 1)
    take(two, 1)
    workers = processes(one)
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < 1.5  # ended by itself, not by force
    check_gone(workers)
    assert len(take(two, 3)) == 3


def test_passes_leave_no_files_threads_or_processes_open(
    load: Callable[..., StreamLoader], tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path / "small", "jsonl", [5])
    loader = load(1, config=stream(tmp_path / "small", "jsonl", tokenizer, lanes=1, epochs=1))
    counts = []
    for _ in range(7):
        assert len(take(loader)) > 0
        counts.append((len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(loader._crew.workers)))
    assert len(set(counts[1:])) == 1, counts


def test_interrupting_the_consumer_stops_the_workers(load: Callable[..., StreamLoader]) -> None:
    loader = load(1)
    take(loader, 1)
    workers = processes(loader)
    workers[0].suspend()
    threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        take(loader)
    check_gone(workers)
    assert not loader._crew.workers
