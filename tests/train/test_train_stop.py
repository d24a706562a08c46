"""Asked to stop at any point, a run saves what it has learnt; resumed, it ends as if it had never stopped."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from streamfeed.train import checkpoint, cli, loop
from streamfeed.train.cli import plan
from streamfeed.train.metrics import read_metrics
from streamfeed.train.progress import Reporter
from streamfeed.train.stop import Stop, Stopped
from tests.train.conftest import rows_from_nothing
from tests.train.fake_stream import FakeLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASE = """
data: {uri: rows, tokenizer: fake, seq_len: 16}
loader: {batch_size: 1, num_workers: 0}
model: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 32, dropout: 0.2}
train: {global_batch_size: 4, max_steps: 7, lr: 0.01, warmup_steps: 2, checkpoint_every: 3, log_every: 1}
eval: {uri: held, every: 2}
"""

pytestmark = pytest.mark.usefixtures("fake_rows")


def run(folder: str, *words: str) -> dict[str, Any]:
    settled = plan(["--config", "base.yaml", "--train.output_dir", folder, "--resume", "latest", *words])
    stop = Stop()
    with stop.handling():
        return loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)), stop)


def ask(*numbers: signal.Signals) -> None:
    """Send signals to this process, which handles them before it goes on."""
    for number in numbers:
        os.kill(os.getpid(), number)


def stopped(folder: str) -> Stopped:
    with pytest.raises(Stopped) as caught:
        run(folder)
    return caught.value


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a run that nobody stops, made once: a run that is stopped starts from the same random numbers."""
    folder = tmp_path_factory.mktemp("straight")
    with rows_from_nothing(folder, BASE):
        run("straight")
    return str(folder / "straight")


def equal(one: str, other: str, steps: int = 7) -> bool:
    first, second = (load_file(Path(run) / f"checkpoints/step-{steps:06d}/model.safetensors") for run in (one, other))
    lines = [
        [{name: line.get(name) for name in ("step", "loss", "eval_loss", "tokens")} for line in read_metrics(path)]
        for path in (Path(one, "metrics.jsonl"), Path(other, "metrics.jsonl"))
    ]
    return lines[0] == lines[1] and all(torch.equal(first[name], second[name]) for name in first)


def on_row(row: int, act: Callable[[], object], *, held_out: bool = False) -> Callable[..., Any]:
    """Act once in front of ``row``, as while a loader waits for it."""
    whole = FakeLoader.__iter__
    done: list[int] = []

    def stops(self: FakeLoader) -> Iterator[dict[str, torch.Tensor]]:
        for batch in whole(self):
            if not done and self._row > row and (self._config.epochs == 1) is held_out:
                done.append(row)
                act()
            yield batch

    return stops


@pytest.mark.parametrize("row", [0, 4, 5, 6, 18, 27], ids="row {}".format)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_it_waits_for_any_row_also_in_the_middle_of_a_step(
    row: int, number: signal.Signals, straight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FakeLoader, "__iter__", on_row(row, partial(ask, number)))
        assert stopped("asked").code == 128 + number
    assert [path.name for path in Path("asked/checkpoints").iterdir()].count(f"step-{row // 4:06d}") == 1
    run("asked")
    assert equal("asked", straight)


@pytest.mark.parametrize("row", [0, 7])
def test_in_the_middle_of_an_evaluation(row: int, straight: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FakeLoader, "__iter__", on_row(row, partial(ask, signal.SIGTERM), held_out=True))
        assert stopped("asked").code == 143
    assert not any("eval_loss" in line for line in read_metrics(Path("asked/metrics.jsonl")))
    run("asked")
    assert equal("asked", straight) or _but_for_the_lost_score("asked", straight)


def _but_for_the_lost_score(one: str, other: str) -> bool:
    """The score that was cut short is not made up for: its step is behind the checkpoint."""
    found, whole = (
        [line["step"] for line in read_metrics(Path(run, "metrics.jsonl")) if "eval_loss" in line]
        for run in (one, other)
    )
    return found == whole[1:]


def test_during_a_save_which_is_finished_first_and_twice_is_as_once(
    straight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = checkpoint.finish
    with monkeypatch.context() as patch:

        def finish(*arguments: Any) -> Any:
            ask(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
            return whole(*arguments)

        patch.setattr("streamfeed.train.job.finish", finish)
        assert stopped("asked").code == 143
    assert [path.name for path in Path("asked/checkpoints").iterdir()] == ["step-000003"]
    run("asked")
    assert equal("asked", straight)


def test_a_second_signal_while_it_saves_because_of_the_first_changes_nothing(
    straight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = checkpoint.finish
    with monkeypatch.context() as patch:

        def finish(*arguments: Any) -> Any:
            ask(signal.SIGINT, signal.SIGTERM)
            return whole(*arguments)

        def first() -> None:
            patch.setattr("streamfeed.train.job.finish", finish)
            ask(signal.SIGINT)

        patch.setattr(FakeLoader, "__iter__", on_row(9, first))
        assert stopped("asked").code == 130
    run("asked")
    assert equal("asked", straight)


def test_at_the_start_there_is_nothing_to_save(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asks(*_: Any, **__: Any) -> None:
        ask(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "set_up", asks)
        assert cli.main(["--config", "base.yaml", "--train.output_dir", "asked"]) == 143
    assert "stopped by SIGTERM" in capsys.readouterr().err
    assert not Path("asked", "checkpoints").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_step_of_many_batches_is_given_up_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more batches than a loader keeps the states of by default."""
    large = ("--train.global_batch_size", "300", "--train.max_steps", "2")
    run("straight", *large)
    with monkeypatch.context() as patch:
        patch.setattr(FakeLoader, "__iter__", on_row(550, partial(ask, signal.SIGTERM)))
        with pytest.raises(Stopped):
            run("asked", *large)
    run("asked", *large)
    assert equal("asked", "straight", steps=2)


def test_a_signal_at_the_very_beginning_of_a_wait_interrupts_it() -> None:
    class Late(Stop):
        def check(self) -> None:
            super().check()
            ask(signal.SIGTERM)

    stop = Late()
    with stop.handling(), pytest.raises(Stopped), stop.interruptible():
        raise AssertionError("it would wait now")


def test_a_second_signal_in_the_middle_of_writing_a_log_line_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def reentrant(*_: object) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    monkeypatch.setattr("streamfeed.train.stop._log.warning", reentrant)
    stop = Stop()
    with stop.handling():
        ask(signal.SIGINT, signal.SIGTERM)
    assert stop.asked == signal.SIGINT
