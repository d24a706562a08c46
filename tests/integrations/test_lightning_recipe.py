"""Lightning, stopped and resumed in the middle of an epoch, at the end of one, and with accumulation."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch

from streamfeed import StreamLoader
from streamfeed.errors import ConfigError
from tests.integrations.recipes import LR, loader, loss_of, model, weights
from tests.streams import CACHE, corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from streamfeed.integrations.lightning import StreamCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning, on loaders without a length and the like


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


class Module(LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = model()
        self._loss = loss_of(self.net)
        self.losses: list[float] = []

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        summed, _none = self._loss.summed(self.net, batch)
        loss = summed / max(self._loss.count(batch), 1)
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.net.parameters(), lr=LR)


def fit(
    shards: str, tokenizer: str, folder: Path, *, resume: bool = False, save_every: int = 0, **options: Any
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Fit in a fresh trainer; ``stream`` are options of the loader, the others Lightning's."""
    first = options.pop("before", [])
    with loader(shards, tokenizer, **options.pop("stream")) as stream:
        callback = StreamCallback(stream)
        when: dict[str, Any] = {"every_n_train_steps": save_every or 10**6}
        if options.pop("save_at_epochs", False):
            when = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
        saver = ModelCheckpoint(folder, save_last=True, save_top_k=0, **when)
        trainer = Trainer(
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[*first, callback, saver],
            **options,
        )
        module = Module()
        last = str(folder / "last.ckpt") if resume else None
        trainer.fit(module, callback.batches(), ckpt_path=last, weights_only=False)
        return module.losses, weights(module.net)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


@pytest.fixture
def shards(tmp_path: Path) -> str:
    corpus(tmp_path / "corpus", "jsonl", [40, 25, 33], words=40)
    return str(tmp_path / "corpus")


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_resumed_in_the_middle_of_a_stream_that_repeats(
    workers: int, accumulate: int, shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    common: dict[str, Any] = {"stream": {"workers": workers}, "accumulate_grad_batches": accumulate}
    straight, expected = fit(shards, str(tokenizer_folder), tmp_path / "straight", max_steps=6, **common)
    before, _ = fit(shards, str(tokenizer_folder), tmp_path / "cut", max_steps=3, save_every=3, **common)
    rest, found = fit(shards, str(tokenizer_folder), tmp_path / "cut", max_steps=6, resume=True, **common)
    assert before + rest == straight
    assert equal(found, expected)


FINITE: dict[str, Any] = {"stream": {"epochs": 1, "batch": 16}, "accumulate_grad_batches": 8}
"""A pass is of 3 steps, the last of them of fewer batches."""


@pytest.mark.parametrize("steps", [2, 4])
def test_resumed_in_the_middle_of_a_pass_of_a_finite_stream(
    steps: int, shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    common = {**FINITE, "max_epochs": 2}
    straight, expected = fit(shards, str(tokenizer_folder), tmp_path / "straight", **common)
    before, _ = fit(shards, str(tokenizer_folder), tmp_path / "cut", max_steps=steps, save_every=steps, **common)
    rest, found = fit(shards, str(tokenizer_folder), tmp_path / "cut", resume=True, **common)
    assert before + rest == straight
    assert 2 * 16 < len(straight) < 2 * 24
    assert equal(found, expected)


def test_resumed_behind_a_pass_of_a_finite_stream(shards: str, tokenizer_folder: Path, tmp_path: Path) -> None:
    common = {**FINITE, "save_at_epochs": True}
    straight, expected = fit(shards, str(tokenizer_folder), tmp_path / "straight", max_epochs=2, **common)
    before, _ = fit(shards, str(tokenizer_folder), tmp_path / "cut", max_epochs=1, **common)
    rest, found = fit(shards, str(tokenizer_folder), tmp_path / "cut", max_epochs=2, resume=True, **common)
    assert before + rest == straight
    assert equal(found, expected)


def test_what_would_not_be_exact_is_refused(shards: str, tokenizer_folder: Path) -> None:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    with loader(shards, str(tokenizer_folder)) as stream:
        trainer = Trainer(accelerator="cpu", max_steps=1, callbacks=[StreamCallback(stream)], **quiet)
        with pytest.raises(ConfigError, match="batches"):
            trainer.fit(Module(), stream)
        of_another = StreamLoader(stream.config, 2, cache_dir=CACHE, rank=0, world_size=2)
        callback = StreamCallback(lambda: of_another)
        trainer = Trainer(accelerator="cpu", max_steps=1, callbacks=[callback], **quiet)
        with pytest.raises(ConfigError, match=r"runs on 1 rank\(s\), the loader on 2"):
            trainer.fit(Module(), callback.batches())


class SavesFirst(Callback):  # type: ignore[misc]
    """Saves before the stream's callback has heard of the batch."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 3:
            trainer.save_checkpoint(self._path)


def test_a_callback_that_saves_first_saves_the_state_of_its_weights(
    shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    common: dict[str, Any] = {"stream": {}, "max_steps": 6}
    (tmp_path / "cut").mkdir()
    straight, expected = fit(
        shards, str(tokenizer_folder), tmp_path / "straight", before=[SavesFirst(tmp_path / "cut/last.ckpt")], **common
    )
    rest, found = fit(shards, str(tokenizer_folder), tmp_path / "cut", resume=True, **common)
    assert rest == straight[3:]
    assert equal(found, expected)
