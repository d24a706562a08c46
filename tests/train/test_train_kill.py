"""The oracle of the main job: SIGKILL at any step, resume, and nothing differs from the run that was never killed."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from tests.tokenizers_for_tests import standard_library_texts
from tests.train.jobs import assert_equal_runs, finish, fork, kill_at, start

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributed.pool import RankPool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    for shard in range(3):
        lines = [json.dumps({"text": text[:600]}) for text in standard_library_texts()[shard::3]]
        (tmp_path / "corpus" / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_run_killed_twice_and_resumed_equals_the_uninterrupted_one_to_the_bit(
    folder: Path, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    """The last of them is the command as users give it."""
    chosen = random.Random(20)
    finish(fork(rank_pool, folder, tokenizer_folder, "--train.output_dir", "straight"))
    resume = ["--train.output_dir", "killed", "--resume", "latest"]
    kill_at(fork(rank_pool, folder, tokenizer_folder, *resume), chosen.randrange(5, 12))
    kill_at(fork(rank_pool, folder, tokenizer_folder, *resume, "--loader.num_workers=0"), chosen.randrange(16, 24))
    finish(start(folder, tokenizer_folder, *resume))
    assert_equal_runs(folder / "straight", folder / "killed", steps=40)
