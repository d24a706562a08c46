"""The training loop over rows from nothing: resume to the bit, ends, skips, branches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from streamfeed.errors import ConfigError, StateError, StreamfeedError
from streamfeed.train import loop
from streamfeed.train.checkpoint import latest
from streamfeed.train.cli import Plan, plan
from streamfeed.train.flags import to_yaml
from streamfeed.train.metrics import read_metrics
from streamfeed.train.progress import Reporter
from streamfeed.train.snapshot import seed_rank
from tests.train.fake_stream import ROWS_OF_AN_EPOCH, FakeLoader, row

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = """
data: {uri: rows, tokenizer: fake, seq_len: 16}
loader: {batch_size: 2, num_workers: 0}
model: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 32, dropout: 0.2}
train: {global_batch_size: 4, max_steps: 9, lr: 0.01, warmup_steps: 2, checkpoint_every: 3, log_every: 2}
"""

pytestmark = pytest.mark.usefixtures("fake_rows")


def run(folder: str, *words: str) -> dict[str, Any]:
    settled = plan(["--config", "base.yaml", "--train.output_dir", folder, *words])
    return go(settled)


def go(settled: Plan) -> dict[str, Any]:
    return loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)))


def weights(folder: str, step: int) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / f"checkpoints/step-{step:06d}/model.safetensors")


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def killed_at(step: int, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until the data of ``step`` is asked for, then stop as if the power had gone."""
    whole = FakeLoader.__iter__

    def stops(self: FakeLoader) -> Iterator[dict[str, torch.Tensor]]:
        for batch in whole(self):
            if self._row > (step - 1) * 4:
                raise KeyboardInterrupt
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(FakeLoader, "__iter__", stops)
        with pytest.raises(KeyboardInterrupt):
            run(folder)


def test_a_resume_gives_the_uninterrupted_run_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    straight = run("straight")
    killed_at(6, "killed", monkeypatch)
    resumed = run("killed", "--resume", "latest")
    assert resumed["loss_end"] == straight["loss_end"]
    assert same(weights("killed", 9), weights("straight", 9))
    logged = [[(line["step"], line["loss"], line["tokens"]) for line in read_metrics(Path(name, "metrics.jsonl"))]
              for name in ("straight", "killed")]  # fmt: skip
    assert logged[0] == logged[1]
    assert [step for step, _, _ in logged[0]] == [1, 2, 4, 6, 8, 9]


def test_a_run_killed_before_its_first_checkpoint_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    killed_at(3, "killed", monkeypatch)
    assert run("killed", "--resume", "latest")["step"] == 9
    assert [line["step"] for line in read_metrics(Path("killed/metrics.jsonl"))] == [1, 2, 4, 6, 8, 9]


def test_the_run_folder_holds_what_it_promises() -> None:
    summary = run("one")
    assert sorted(path.name for path in Path("one").iterdir()) == [
        "checkpoints", "config.yaml", "metrics.jsonl", "summary.json", "tensorboard",
    ]  # fmt: skip
    line = read_metrics(Path("one/metrics.jsonl"))[-1]
    assert {"step", "loss", "lr", "tokens", "tokens_per_s", "data_wait_pct"} <= set(line)
    assert json.loads(Path("one/summary.json").read_text()) == summary
    assert summary["ended_by"] == "train.max_steps"
    assert Path(summary["checkpoint"]).name == "step-000009"
    labels = sum(int(batch) for batch in _labels(range(9 * 4)))
    assert line["tokens"] == summary["tokens"] == labels

    again = run("two", "--config", "one/config.yaml")
    assert (again["loss_end"], again["tokens"]) == (summary["loss_end"], summary["tokens"])


def _labels(rows: range) -> Iterator[int]:
    for g in rows:
        yield int((row(g, 16)["labels"][1:] != -100).sum())


def test_the_printed_command_resumes_with_the_settings_of_the_run() -> None:
    command = run("a b")["resume"].split(" -m streamfeed.train ")[1]
    assert command == "--resume 'a b' --train.max_steps 18"
    settled = plan(["--resume", "a b", "--train.max_steps", "12"])
    assert settled.run.path == Path("a b")
    assert settled.config.data.seq_len == 16
    assert settled.config.train.lr == 0.01
    assert go(settled)["step"] == 12
    assert FakeLoader.handed_out == list(range(12 * 4))


def test_a_finite_stream_ends_the_run_with_a_smaller_step() -> None:
    summary = run("finite", "--data.epochs", "1", "--train.max_steps", "100")
    assert summary["ended_by"] == "the end of the data"
    assert summary["step"] == -(-ROWS_OF_AN_EPOCH // 4)
    assert summary["tokens"] == sum(_labels(range(ROWS_OF_AN_EPOCH)))
    assert read_metrics(Path("finite/metrics.jsonl"))[-1]["step"] == summary["step"]
    assert (
        run("finite", "--data.epochs", "1", "--train.max_steps", "100", "--resume", "latest")["step"] == summary["step"]
    )
    with pytest.raises(ConfigError, match=r"data.epochs is 2, .* at the end of 1; resume from an earlier one"):
        run("finite", "--data.epochs", "2", "--train.max_steps", "100", "--resume", "latest")
    assert FakeLoader.handed_out == list(range(ROWS_OF_AN_EPOCH))


def test_skipped_rows_are_stepped_over_once_however_often_the_flag_is_given() -> None:
    run("spike", "--train.max_steps", "3")
    skip = ["--resume", "latest", "--train.skip_rows", "8"]
    summary = run("spike", "--train.max_steps", "6", *skip)
    assert summary["skipped_rows"] == 8
    assert FakeLoader.handed_out == list(range(4 * 3 + 8 + 4 * 3))
    assert summary["tokens"] == sum(_labels(range(12))) + sum(_labels(range(20, 32)))
    run("spike", "--train.max_steps", "9", *skip)
    assert FakeLoader.handed_out == list(range(4 * 9 + 8))
    with pytest.raises(ConfigError, match="to step over 4 more, give 12"):
        run("spike", "--resume", "latest", "--train.skip_rows", "4")


def test_a_skip_equals_a_stream_that_begins_there() -> None:
    run("skip", "--train.skip_rows", "4", "--train.max_steps", "3")
    assert FakeLoader.handed_out == list(range(4 + 12))


def test_a_resume_keeps_the_global_batch_and_its_micro_batches_may_change() -> None:
    straight = run("straight", "--model.dropout", "0")
    run("other", "--model.dropout", "0", "--train.max_steps", "3")
    with pytest.raises(ConfigError, match="global_batch_size is 8, but the run resumed has 4"):
        run("other", "--train.global_batch_size", "8", "--resume", "latest")
    resumed = run("other", "--model.dropout", "0", "--loader.batch_size", "1", "--resume", "latest")
    assert resumed["step"] == 9
    assert resumed["tokens"] == straight["tokens"]
    assert FakeLoader.handed_out == list(range(36)) + list(range(36))


def test_a_resume_from_an_earlier_checkpoint_leaves_the_later_ones_behind() -> None:
    run("branch")
    settled = plan(["--resume", "branch/checkpoints/step-000003", "--train.max_steps", "4", "--train.lr", "0.02"])
    assert go(settled)["step"] == 4
    found = latest(Path("branch/checkpoints"))
    assert found is not None
    assert found.step == 4
    assert [line["step"] for line in read_metrics(Path("branch/metrics.jsonl"))] == [1, 2, 4]
    names = sorted(path.name for path in Path("branch/checkpoints").iterdir())
    assert names == ["replaced-step-000006-1", "replaced-step-000009-1", "step-000003", "step-000004"]


def test_a_checkpoint_may_start_another_run_folder() -> None:
    run("first")
    settled = plan(["--resume", "first/checkpoints/step-000006", "--train.output_dir", "second"])
    assert go(settled)["step"] == 9
    assert same(weights("first", 9), weights("second", 9))
    assert [line["step"] for line in read_metrics(Path("first/metrics.jsonl"))] == [1, 2, 4, 6, 8, 9]
    assert [line["step"] for line in read_metrics(Path("second/metrics.jsonl"))] == [8, 9]


def test_a_loss_that_is_not_finite_stops_the_run_before_it_is_kept() -> None:
    with pytest.raises(StreamfeedError, match=r"the loss is \w+ at step \d+; .*skip_rows"):
        run("wild", "--train.lr", "1e30", "--train.clip", "0", "--train.warmup_steps", "0")
    assert not Path("wild/checkpoints").exists()
    assert all(line["loss"] is not None for line in read_metrics(Path("wild/metrics.jsonl")))


def test_a_gradient_that_is_not_finite_is_not_kept_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the step was still finite: its weights no longer are."""
    spoilt = torch.tensor(float("nan"))
    monkeypatch.setattr("accelerate.Accelerator.clip_grad_norm_", lambda *_: spoilt)
    with pytest.raises(StreamfeedError, match=r"the norm of the gradient is nan at step 3"):
        run("wild")
    assert not Path("wild/checkpoints").exists()


def test_a_run_bounded_by_labels_ends_with_the_step_that_reaches_them_and_resumes_to_the_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = 5 * 50
    longer = BASE.replace("max_steps: 9", f"max_tokens: {bound}").replace("log_every: 2", "log_every: 1")
    Path("base.yaml").write_text(longer)
    straight = run("straight")
    lines = read_metrics(Path("straight/metrics.jsonl"))
    assert straight["ended_by"] == "train.max_tokens"
    assert lines[-2]["tokens"] < bound <= lines[-1]["tokens"] == straight["tokens"]
    assert lines[-1]["lr"] < 0.3 * 0.01
    assert straight["resume"].endswith(f"--train.max_tokens {2 * straight['tokens']}")
    killed_at(5, "killed", monkeypatch)
    run("killed", "--resume", "latest")
    assert [line["lr"] for line in read_metrics(Path("killed/metrics.jsonl"))] == [line["lr"] for line in lines]
    assert same(weights("killed", straight["step"]), weights("straight", straight["step"]))


def test_only_the_newest_checkpoints_are_kept() -> None:
    run("few", "--train.keep_checkpoints", "2", "--train.checkpoint_every", "1")
    assert sorted(path.name for path in Path("few/checkpoints").iterdir()) == ["step-000008", "step-000009"]


def test_a_checkpoint_without_the_state_of_the_data_is_refused_and_passed_over() -> None:
    run("cut", "--train.max_steps", "6")
    Path("cut/checkpoints/step-000006/stream.json").unlink()
    with pytest.raises(StateError, match=r"step-000006 is no complete checkpoint: stream\.json is missing"):
        plan(["--resume", "cut/checkpoints/step-000006"])
    start = plan(["--resume", "cut"]).start
    assert start is not None
    assert start.step == 3


def test_ranks_draw_other_random_numbers_and_each_the_same_again() -> None:
    drawn = []
    for rank in (1, 2, 1):
        seed_rank(rank, seed=0)
        drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_checkpoint_can_be_opened_as_a_model() -> None:
    from transformers import AutoModelForCausalLM

    summary = run("model", "--train.max_steps", "1")
    model = AutoModelForCausalLM.from_pretrained(summary["checkpoint"])
    saved = weights("model", 1)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in saved.items())
    settled = plan(["--config", "base.yaml", "--model.name_or_path", summary["checkpoint"], "--train.max_steps", "1"])
    assert go(replace(settled))["step"] == 1
    assert to_yaml(settled.config) != Path(settled.run.config).read_text(), "output_dir is resolved"
