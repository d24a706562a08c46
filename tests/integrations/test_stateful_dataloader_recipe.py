"""torchdata's StatefulDataLoader over a StreamDataset, and what Accelerate must not do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from streamfeed import StreamDataset
from streamfeed.errors import ConfigError
from tests.integrations.recipes import LR, config, loss_of, model, weights
from tests.streams import CACHE, corpus

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributed.pool import RankPool


@pytest.fixture
def shards(tmp_path: Path) -> str:
    corpus(tmp_path / "corpus", "jsonl", [40, 25, 33], words=40)
    return str(tmp_path / "corpus")


def loop(
    shards: str, tokenizer: str, folder: Path, *, steps: int, workers: int, resume: bool
) -> tuple[list[float], dict[str, torch.Tensor]]:
    data = StatefulDataLoader(
        StreamDataset(config(shards, tokenizer), cache_dir=CACHE), batch_size=2, num_workers=workers
    )
    net = model()
    loss_function = loss_of(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
    if resume:
        saved = torch.load(folder / "saved.pt", weights_only=False)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        data.load_state_dict(saved["data"])
    losses = []
    for batch in data:
        summed, _ = loss_function.summed(net, batch)
        loss = summed / max(loss_function.count(batch), 1)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if len(losses) == steps:
            break
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "data": data.state_dict()}
    torch.save(state, folder / "saved.pt")
    return losses, weights(net)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_stopped_and_resumed_it_equals_the_uninterrupted_run_to_the_bit(
    workers: int, shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    def run(steps: int, *, resume: bool = False) -> tuple[list[float], dict[str, torch.Tensor]]:
        return loop(shards, str(tokenizer_folder), tmp_path, steps=steps, workers=workers, resume=resume)

    straight, expected = run(7)
    before, _ = run(3)
    rest, found = run(4, resume=True)
    assert before + rest == straight
    assert all(torch.equal(weight, expected[name]) for name, weight in found.items())


def prepared(rank: int, size: int, *, corpus: str, tokenizer: str, dispatch: bool) -> Any:
    """Let Accelerate have a DataLoader over the rows of a rank."""
    from accelerate.utils import DataLoaderConfiguration

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    dataset = StreamDataset(config(corpus, tokenizer), cache_dir=CACHE)
    data = accelerator.prepare(DataLoader(dataset, batch_size=2))
    try:
        next(iter(data))
    except ConfigError as error:
        return str(error)
    return "nothing was said"


@pytest.mark.processes
def test_accelerate_is_kept_from_dividing_the_rows_of_a_rank_again(
    shards: str, tokenizer_folder: Path, tmp_path: Path, rank_pool: RankPool
) -> None:
    arguments = {"corpus": shards, "tokenizer": str(tokenizer_folder), "dispatch": False}
    work = "tests.integrations.test_stateful_dataloader_recipe:prepared"
    said = rank_pool.run(tmp_path / "ranks", work, 2, arguments)
    assert all("one rank's already" in one for one in said), said
