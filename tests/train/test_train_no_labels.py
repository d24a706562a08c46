"""A run whose rows have no label learns nothing, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console

from streamfeed.errors import StreamfeedError
from streamfeed.train import loop
from streamfeed.train.cli import plan
from streamfeed.train.progress import Reporter
from tests.train.fake_stream import FakeLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = [
    *("--data.uri=rows", "--data.tokenizer=fake", "--data.seq_len=16", "--loader.batch_size=2"),
    *("--model.hidden_size=16", "--model.num_layers=1", "--model.num_heads=2", "--train.output_dir=run"),
]


class _Silent(FakeLoader):
    """Rows of which no token is a label."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in super().__iter__():
            yield {**batch, "labels": torch.full_like(batch["labels"], -100)}


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(loop, "StreamLoader", _Silent)
    monkeypatch.chdir(tmp_path)
    yield
    torch.use_deterministic_algorithms(False)


def run(*words: str) -> Any:
    settled = plan([*WORDS, *words])
    return loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)))


@pytest.mark.parametrize(
    ("words", "steps"), [(("--train.max_steps=3",), 3), (("--data.epochs=1",), 21), (("--train.max_steps=500",), 100)]
)
def test_a_run_without_a_label_is_an_error_soon_and_keeps_nothing(words: tuple[str, ...], steps: int) -> None:
    with pytest.raises(
        StreamfeedError, match=rf"no row of the first {steps} step\(s\) has a label.*streamfeed inspect"
    ):
        run(*words)
    assert not list(Path("run/checkpoints").glob("step-*"))


def test_of_chats_the_error_says_whose_turns_have_labels() -> None:
    with pytest.raises(StreamfeedError, match='whose role is "assistant"; map can rename roles'):
        run("--data.objective=chat", "--train.max_steps=1")
