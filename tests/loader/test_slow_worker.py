"""A worker that is slower than the others: its rows are right all the same, and the report names it."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamLoader
from streamfeed.loader.report import Report, Waited
from tests.streams import CACHE, Run, corpus, equal, stream, take

if TYPE_CHECKING:
    from pathlib import Path


def slow_in_worker_1(record: dict[str, Any]) -> dict[str, Any]:
    """Take ten times as long in one of the workers."""
    if multiprocessing.current_process().name == "streamfeed-1":
        time.sleep(0.01)
    return record


@pytest.mark.processes
def test_one_worker_slowed_ten_times_changes_no_row_and_is_named(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path, "jsonl", [40, 25, 33], words=40)
    monkeypatch.setattr("streamfeed.loader.job.MESSAGE_BYTES", 2048)  # or one message would hold all
    config = stream(tmp_path, "jsonl", tokenizer, lanes=6)
    config = replace(config, sources=[Source(str(tmp_path), map=slow_in_worker_1)])
    reference = Run.start(config, 1, 4).take(160)[0]
    loader = StreamLoader(config, 4, num_workers=3, start_method="fork", cache_dir=CACHE)
    with loader:
        assert equal(take(loader, 160), reference)
    report = loader.report()
    assert len(report.waited) == 3
    assert "for worker 1 of 3" in report.slow_worker()
    assert report.slow_worker() in report.remarks()


@pytest.mark.parametrize(
    "waited",
    [
        (),
        (Waited(100.0, 0.0),),
        (Waited(100.0, 0.1), Waited(1.0, 0.1)),  # equally slow: the first is waited for
        (Waited(0.1, 0.0), Waited(0.0, 0.1)),  # not worth a word
        (Waited(5.0, 80.0), Waited(0.0, 90.0)),  # all of them wait for training
    ],
    ids=["in process", "alone", "equal", "short", "slow trainer"],
)
def test_nobody_is_named_where_nobody_is_to_blame(waited: tuple[Waited, ...]) -> None:
    assert Report(waited=waited).slow_worker() == ""
    assert Report(waited=waited).remarks() == ""
