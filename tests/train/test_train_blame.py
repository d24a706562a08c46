"""What a run says of its waiting for data, and the profile that it writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.train.cli import main
from streamfeed.train.metrics import read_metrics
from tests.streams import corpus
from tests.train.jobs import FLAGS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: Path) -> tuple[Path, str]:
    """A run that waits for a store, and what it said."""
    folder = tmp_path_factory.mktemp("blame")
    corpus(folder / "corpus", "jsonl", [6] * 20, words=20)
    flags = FLAGS | {
        "data.uri": f"flaky://{folder / 'corpus'}",
        "data.storage_options": json.dumps({"latency_s": 0.03}),
        "data.shuffle_buffer": 0,
        "data.tokenizer": tokenizer_folder,
        "loader.num_workers": 0,
        "train.max_steps": 12,
        "train.output_dir": folder / "run",
        "train.trackers": "none",
        "train.checkpoint_every": 0,
    }
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("rich.console.Console.print", lambda _, *parts, **__: said.extend(map(str, parts)))
        assert main(["--profile", *(f"--{name}={value}" for name, value in flags.items())]) == 0
    return folder / "run", "\n".join(said)


def test_a_line_that_waited_names_the_stage_and_the_knob(run: tuple[Path, str]) -> None:
    folder, said = run
    lines = read_metrics(folder / "metrics.jsonl")
    slow = [line for line in lines if line["data_wait_pct"] > 5]
    assert slow
    assert all(("bottleneck" in line) == (line["data_wait_pct"] > 5) for line in lines)
    assert "read" in {line["bottleneck"] for line in slow}
    shown = [text for text in said.splitlines() if "bring the shards nearer" in text]
    assert shown
    assert all(word in shown[-1] for word in ("loss ", "lr ", "tokens/s", "data wait", "raise loader.num_workers"))


def test_the_summary_names_what_held_up_the_whole_run(run: tuple[Path, str]) -> None:
    summary = json.loads((run[0] / "summary.json").read_text())
    assert summary["data_wait_pct"] > 5
    assert summary["bottleneck"].startswith("read: ")


def test_the_profile_has_every_step_behind_the_wait_for_its_data(run: tuple[Path, str]) -> None:
    folder, said = run
    assert "open it at https://ui.perfetto.dev" in said
    trace: dict[str, Any] = json.loads((folder / "profile.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = [span for span in spans if span["name"].startswith("step ")]
    assert [span["name"] for span in steps] == [f"step {number}" for number in range(1, 13)]
    waits = [span for span in spans if span["name"] == "wait"]
    assert all(any(wait["ts"] + wait["dur"] <= step["ts"] for wait in waits) for step in steps)
    assert "profile" not in (folder / "config.yaml").read_text()
