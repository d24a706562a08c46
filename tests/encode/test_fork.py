"""Engines in child processes, after the parent has used them with all its threads: real processes, with time limits."""

from __future__ import annotations

import multiprocessing
import os
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.encode import forking
from streamfeed.encode.fast import FastokensEngine
from streamfeed.encode.frame import Frame
from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.trial import thread_environment
from tests.tokenizers_for_tests import bpe_json, standard_library_texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import SimpleQueue
    from pathlib import Path

    from streamfeed.encode.protocol import Engine

ENGINES: dict[str, Callable[[str, Frame], Engine]] = {"fastokens": FastokensEngine, "huggingface": HuggingFaceEngine}
TEXTS = standard_library_texts()[:8]
LIMIT_S = 60
FRAME = Frame(None, 0)

pytestmark = pytest.mark.processes


def encode_in_child(name: str, spec_json: str, inherited: Engine | None, results: SimpleQueue[list[int]]) -> None:
    """What a worker does: set its threads, build an engine, encode; and use the parent's engine where it has it."""
    os.environ.update(thread_environment(1))
    engine = ENGINES[name](spec_json, FRAME)
    ids = [engine.encode(TEXTS).ids for _ in range(3)]
    if inherited is not None:
        ids.append(inherited.encode(TEXTS).ids)
    results.put([int(each.sum()) for each in ids])


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("name", ["fastokens", "huggingface"])
def test_a_child_encodes_after_its_parent_used_the_engine_on_all_threads(name: str, method: str) -> None:
    parent = ENGINES[name](bpe_json(), FRAME)
    expected = int(parent.encode(TEXTS).ids.sum())
    parent.encode(TEXTS)
    context: Any = multiprocessing.get_context(method)
    results: SimpleQueue[list[int]] = context.SimpleQueue()
    inherited = parent if method == "fork" else None
    children = [
        context.Process(target=encode_in_child, args=(name, bpe_json(), inherited, results), daemon=True)
        for _ in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(LIMIT_S)
    hanging = [child for child in children if child.is_alive()]
    for child in hanging:
        child.kill()
    assert not hanging
    assert [child.exitcode for child in children] == [0, 0]
    assert {total for _ in children for total in results.get()} == {expected}


@pytest.mark.parametrize("name", ["fastokens", "huggingface"])
def test_children_forked_while_another_thread_encodes_do_not_hang(name: str) -> None:
    """The worst moment to fork: locks of the engine may be held by a thread that the child does not have."""
    parent = ENGINES[name](bpe_json(), FRAME)
    expected = int(parent.encode(TEXTS).ids.sum())
    stop = Event()

    def keep_encoding() -> None:
        while not stop.is_set():
            parent.encode(TEXTS)

    busy = Thread(target=keep_encoding, daemon=True)
    busy.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(4):
            results: SimpleQueue[list[int]] = context.SimpleQueue()
            child = context.Process(target=encode_in_child, args=(name, bpe_json(), None, results), daemon=True)
            child.start()
            child.join(LIMIT_S)
            hangs = child.is_alive()
            child.kill()
            assert not hangs
            assert set(results.get()) == {expected}
    finally:
        stop.set()
        busy.join(LIMIT_S)


class Threads:
    """Threads that one sees in place of the process's: one of the engine's, and one that has just ended."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, sleeps_behind: int) -> None:
        FastokensEngine(bpe_json(), FRAME)
        self.folder = folder
        self.pauses = 0
        self._sleeps_behind = sleeps_behind
        self._say("R")
        monkeypatch.setattr(forking, "_tasks", lambda: [folder / "ended", folder])
        monkeypatch.setattr("streamfeed.encode.forking.time.sleep", self._pause)

    def _say(self, state: str) -> None:
        (self.folder / "stat").write_text(f"7 (fastokens-0) {state} 1 7")

    def _pause(self, _: float) -> None:
        self.pauses += 1
        if self.pauses == self._sleeps_behind:
            self._say("S")


def forked(work: Callable[[], object]) -> int:
    """Do ``work`` in a fork of this process; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_until_the_threads_of_the_engine_sleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(tmp_path, monkeypatch, sleeps_behind=3)
    assert forked(lambda: None) == 0
    assert threads.pauses == 3


def test_a_fork_that_waits_no_longer_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forking._warn.cache_clear()
    threads = Threads(tmp_path, monkeypatch, sleeps_behind=0)
    monkeypatch.setattr(forking, "_PAUSES", 5)
    assert [forked(lambda: None) for _ in range(2)] == [0, 0]
    assert threads.pauses == 10
    (record,) = caplog.records
    assert "a child that encodes may hang" in record.getMessage()


def test_a_fork_waits_for_the_end_of_an_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, held, order = FastokensEngine(bpe_json(), FRAME), Event(), []

    def encode() -> None:
        with forking.no_fork():
            held.set()
            engine.encode(TEXTS)
            order.append("encoded")

    def look() -> list[Path]:
        order.append("looked")
        return []

    monkeypatch.setattr(forking, "_tasks", look)
    thread = Thread(target=encode, daemon=True)
    thread.start()
    held.wait()
    assert forked(lambda: engine.encode(TEXTS[:1])) == 0
    thread.join(LIMIT_S)
    assert order == ["encoded", "looked"]
