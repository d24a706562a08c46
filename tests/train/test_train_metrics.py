from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streamfeed.train.metrics import Meter, MetricsLog, cut_metrics, read_metrics

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_after_the_checkpoint_and_a_torn_last_line_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for step in (1, 10, 20, 30):
            log.write({"step": step, "loss": 1 / step})
    path.write_text(path.read_text() + '{"step": 40, "lo')
    assert [line["step"] for line in read_metrics(path)] == [1, 10, 20, 30]
    assert cut_metrics(path, 20) == 1
    with MetricsLog(path) as log:
        log.write({"step": 30, "loss": 0.5})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 10, 20, 30]
    assert lines[1]["loss"] == 1 / 10


def test_cutting_where_there_is_no_file_makes_none(tmp_path: Path) -> None:
    assert cut_metrics(tmp_path / "metrics.jsonl", 3) == 0
    assert not list(tmp_path.iterdir())


def test_waiting_is_measured_against_all_time_of_the_lap_and_of_the_run() -> None:
    now = 0.0

    def clock() -> float:
        return now

    meter = Meter(clock)
    with meter.waiting():
        now += 1.0
    now += 3.0
    meter.add(400)
    assert meter.lap().figures() == {"tokens_per_s": 100.0, "data_wait_pct": 25.0}
    now += 4.0
    meter.add(40)
    assert meter.lap().figures() == {"tokens_per_s": 10.0, "data_wait_pct": 0.0}
    assert meter.total().figures() == pytest.approx({"tokens_per_s": 55.0, "data_wait_pct": 12.5})
    assert (meter.total().seconds, meter.total().waited) == (8.0, 1.0)
