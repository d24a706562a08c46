"""``streamfeed bench``: what a program and what people get."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from streamfeed.cli.bench import Bench
from streamfeed.cli.bench_table import show
from streamfeed.cli.main import main
from streamfeed.cli.measure import Faults, Measured, stage_costs
from streamfeed.cli.own_flags import take_own
from streamfeed.errors import ConfigError
from streamfeed.loader.advice import Suggestion
from streamfeed.loader.bottleneck import Bottleneck
from streamfeed.loader.flow import Flow
from streamfeed.stages import Stages
from tests.streams import corpus

if TYPE_CHECKING:
    from pathlib import Path

SUGGESTED = Suggestion(2, "as many as there is room for")
TRAINING = Bottleneck("training", 1.0, "data is ready before it is asked for", "")


@pytest.fixture
def words(tmp_path: Path, tokenizer_folder: Path) -> list[str]:
    corpus(tmp_path / "corpus", "jsonl", [30, 30])
    given = {"data.uri": tmp_path / "corpus", "data.tokenizer": tokenizer_folder, "data.seq_len": 32}
    given |= {"loader.num_workers": 0, "data.shuffle_buffer": 16}
    return ["bench", "--seconds=0.3", *(f"--{name}={value}" for name, value in given.items())]


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_program_gets_one_object_whose_parts_fit_together(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(words, capsys)
    assert found["tokens_per_s"] == pytest.approx(found["tokens"] / found["seconds"])
    assert found["tokens"] == found["batches"] * 8 * 32
    assert 90 < found["data_wait_pct"] <= 100  # at full speed there is nothing but waiting
    assert found["first_batch_s"] > 0
    assert found["peak_rss_mb"] > 30
    assert found["bottleneck"] in found["stages"]
    assert found["stages"]["wait"]["items"] == found["batches"]
    assert sum(stage["share"] for stage in found["stages"].values()) == pytest.approx(1)
    encode = found["stages"]["encode"]
    assert encode["s_per_million_tokens"] == pytest.approx(encode["busy_s"] / found["tokens"] * 1e6)
    assert "sweep" not in found


def test_steps_of_some_length_leave_time_for_the_data(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = told([*words, "--step-ms", "20"], capsys)
    assert found["seconds"] / found["batches"] >= 0.02
    assert found["data_wait_pct"] < 50
    assert found["step_ms"] == 20
    assert found["suggested_num_workers"] == 1
    assert "training takes" in found["suggested_because"]


@pytest.mark.processes
def test_a_sweep_measures_every_number_of_workers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = told([*words, "--workers=0,1"], capsys)
    assert [one["num_workers"] for one in found["sweep"]] == [0, 1]
    assert found["tokens_per_s"] in [one["tokens_per_s"] for one in found["sweep"]]
    assert {"pack", "send", "receive"} <= set(found["stages"]) or found["num_workers"] == 0


def test_people_get_a_table_and_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("s / M tokens", "encode", "0 worker(s), full speed", "bottleneck: "))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--seconds=0"], "--seconds takes a number of at least 0.1, got '0'"),
        (["--seconds=soon"], "--seconds takes a number"),
        (["--step-ms=-1"], "--step-ms takes a number of at least 0"),
        (["--workers=1,two"], "--workers takes a whole number of at least 0, got 'two'"),
        (["--plot"], "--plot needs a value"),
        (["--second=3"], "there is no flag --second"),
    ],
)
def test_a_wrong_flag_is_an_error_that_names_it(
    words: list[str], wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *wrong]) == 2
    assert said in capsys.readouterr().err


def test_a_stream_that_ends_too_early_is_an_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--data.epochs=1", "--step-ms=1"]) == 1
    assert "the stream ended before anything was measured" in capsys.readouterr().err


def test_faults_are_those_of_the_time_that_is_measured(
    tmp_path: Path, tokenizer_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad records that all lie in front are met in the warm-up, and decoding goes on behind it."""
    corpus(tmp_path / "corpus", "jsonl", [60] * 30)
    first = tmp_path / "corpus" / "000.jsonl"
    first.write_text("{no json\n" * 5 + first.read_text())
    given = {"data.uri": tmp_path / "corpus", "data.tokenizer": tokenizer_folder, "data.seq_len": 32}
    given |= {"loader.num_workers": 0, "data.shuffle_buffer": 0, "data.window_bytes": 4096, "data.lanes": 1}
    given |= {"data.on_error": "skip", "data.epochs": 1}
    found = told(
        ["bench", "--seconds=5", "--step-ms=0.1", *(f"--{name}={value}" for name, value in given.items())], capsys
    )
    assert found["stages"]["decode"]["items"] > 0
    assert found["stages"]["decode"]["skips"] == 0


def test_a_fault_is_told_also_where_nothing_else_was_done() -> None:
    costs = stage_costs(Flow(Stages().figures()), 1000, Faults(retries=3, skips=4))
    assert {name: (cost.retries, cost.skips) for name, cost in costs.items()} == {"read": (3, 0), "decode": (0, 4)}


def test_memory_that_nobody_says_is_unknown_and_not_nothing(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfeed.cli.measure._memory", lambda: 0)
    assert told(words, capsys)["peak_rss_mb"] is None
    assert main(words) == 0
    assert "unknown memory in all" in capsys.readouterr().out


def test_a_picture_that_cannot_be_is_refused_before_anything_is_measured(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfeed.cli.bench.bench", lambda *_: pytest.fail("was measured"))
    assert main([*words, "--plot=figure.pdf"]) == 2
    assert "a plot is a PNG" in capsys.readouterr().err


def measured(workers: int, speed: float) -> Measured:
    return Measured(workers, 1.0, 10, int(speed), speed, 1.0, 0.5, 100.0, TRAINING, {}, SUGGESTED)


def test_of_numbers_of_workers_that_are_equally_fast_the_smallest_is_the_best() -> None:
    assert Bench(0, [measured(4, 100), measured(2, 98), measured(1, 60)]).best.num_workers == 2
    assert Bench(0, [measured(1, 60), measured(4, 100)]).best.num_workers == 4


def test_faults_stand_with_the_stage_that_met_them() -> None:
    stages = Stages()
    for stage in (stages.read, stages.fetch, stages.decode):
        stage.count(1, 2)
        stage.busy.add(0, 5)
    costs = stage_costs(Flow(stages.figures()), 1000, Faults(retries=3, skips=4))
    assert (costs["fetch"].retries, costs["read"].retries, costs["decode"].skips) == (3, 0, 4)
    assert (costs["fetch"].share, costs["read"].share, costs["decode"].share) == (0.0, 0.5, 0.5)
    console = Console(width=200)
    with console.capture() as captured:
        show(Bench(50, [Measured(1, 1.0, 10, 1000, 1000.0, 0.5, 0.5, 100.0, TRAINING, costs, SUGGESTED)]), console)
    shown = captured.get()
    assert "3 retries" in shown
    assert "4 skipped" in shown
    assert "a GPU with such steps would have waited for 0.50 % of the time" in shown


def test_own_flags_are_told_from_those_of_training() -> None:
    own, on, rest = take_own(
        ["--data.uri", "x", "--rows", "3", "--json", "--seconds=1", "tail"],
        {"--rows": "1", "--seconds": ""},
        ["--json"],
    )
    assert own == {"--rows": "3", "--seconds": "1"}
    assert on == {"--json"}
    assert rest == ["--data.uri", "x", "tail"]
    with pytest.raises(ConfigError, match="--rows needs a value"):
        take_own(["--rows"], {"--rows": "1"})
