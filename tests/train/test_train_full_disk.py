"""A disk that fills up in the middle of a save, as the system says it: what was saved before stands."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streamfeed.errors import StreamfeedError
from streamfeed.train import loop, snapshot
from streamfeed.train.cli import plan
from streamfeed.train.progress import Reporter

BASE = """
data: {uri: rows, tokenizer: fake, seq_len: 16}
loader: {batch_size: 4, num_workers: 0}
model: {hidden_size: 64, num_layers: 1, num_heads: 2, intermediate_size: 64}
train: {max_steps: 4, lr: 0.01, warmup_steps: 2, checkpoint_every: 2, output_dir: full}
"""

pytestmark = pytest.mark.usefixtures("fake_rows")


def run() -> dict[str, Any]:
    settled = plan(["--config", "base.yaml", "--resume", "latest"])
    return loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)))


@pytest.mark.parametrize("room", [100, 20_000, 200_000], ids="{} bytes".format)
def test_a_save_without_room_says_so_and_leaves_the_checkpoints_before_it(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files fail first, then the weights, which another library writes, then the optimizer's state."""
    whole = snapshot.save_training
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(folder: Path, model: Any, weights: Any, moments: Any, position: Any, *rest: Any) -> None:
        if position.step == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            whole(folder, model, weights, moments, position, *rest)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with monkeypatch.context() as patch:
        patch.setattr("streamfeed.train.job.save_training", full)
        with pytest.raises(StreamfeedError, match="the checkpoint of step 4 cannot be written") as caught:
            run()
    assert "make room, then go on with --resume latest" in str(caught.value)
    assert [path.name for path in Path("full/checkpoints").iterdir()] == ["step-000002"]
    assert run()["step"] == 4
    assert {path.name for path in Path("full/checkpoints").iterdir()} == {"step-000002", "step-000004"}
