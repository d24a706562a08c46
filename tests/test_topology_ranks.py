"""Who we are among the ranks, and states that are complete on every rank of a real group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamfeed import topology
from streamfeed.errors import ConfigError
from streamfeed.topology import Ranks, cores_of_rank
from tests.streams import CACHE, Run, corpus, global_rows, stream

ROOT = Path(__file__).parent.parent


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_of_default_group", lambda: (1, 4))
    monkeypatch.setattr(topology, "_gloo", lambda group: None)


def find_rank(rank: int | None, world_size: int | None, environment: dict[str, str]) -> tuple[int, int]:
    found = Ranks.find(rank, world_size, environment=environment)
    return found.number, found.size


def test_alone_is_rank_0_of_1() -> None:
    assert find_rank(None, None, {}) == (0, 1)


def test_the_arguments_win(group: None) -> None:
    assert find_rank(2, 3, {"RANK": "0", "WORLD_SIZE": "8"}) == (2, 3)


@pytest.mark.parametrize(("rank", "world_size"), [(0, None), (None, 2)])
def test_one_argument_without_the_other_is_refused(rank: int | None, world_size: int | None) -> None:
    with pytest.raises(ConfigError, match="both rank and world_size"):
        find_rank(rank, world_size, {})


def test_the_environment_of_torchrun_says_who_we_are_and_without_a_group_there_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert find_rank(None, None, {"RANK": "3", "WORLD_SIZE": "8"}) == (3, 8)
    assert "no process group is up" in caplog.text
    caplog.clear()
    assert find_rank(3, 8, {"RANK": "3", "WORLD_SIZE": "8"}) == (3, 8)
    assert find_rank(None, None, {"RANK": "0", "WORLD_SIZE": "1"}) == (0, 1)
    assert not caplog.text, "who gives rank and size knows what they do"


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "8"}, {"WORLD_SIZE": "8", "RANK": "x"}], ids=str)
def test_half_an_environment_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="torchrun"):
        find_rank(None, None, environment)


def test_a_group_says_who_we_are(group: None) -> None:
    assert find_rank(None, None, {}) == (1, 4)
    assert find_rank(None, None, {"RANK": "1", "WORLD_SIZE": "4"}) == (1, 4)


def test_a_group_and_an_environment_that_disagree_are_refused(group: None) -> None:
    with pytest.raises(ConfigError, match=r"rank 1 of 4, the environment .*rank 1 of 8"):
        find_rank(None, None, {"RANK": "1", "WORLD_SIZE": "8"})


def test_a_group_of_another_size_is_not_asked_for_its_states(group: None) -> None:
    state = {"rows": 3}
    ranks = Ranks.find(0, 2, environment={})
    assert ranks.group is None
    assert ranks.join_states(state) is state


RANK = """
import json, sys
from datetime import timedelta
from pathlib import Path
import torch.distributed as dist
from streamfeed import Source, StreamConfig, StreamLoader

rank, folder, tokenizer, cache = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2, timeout=timedelta(0, 30))
sources = [Source(str(folder / "corpus"), text="text")]
config = StreamConfig(sources, tokenizer=tokenizer, seq_len=32, shuffle_buffer=24, lanes=4)
loader = StreamLoader(config, 3, cache_dir=cache)
assert (loader.rank, loader.world_size) == (rank, 2)
ids = [next(iter(loader))["input_ids"].tolist() for _ in range(5)]
state = loader.state_dict()
(folder / f"{rank}.json").write_text(json.dumps({"ids": ids, "state": state}))
dist.destroy_process_group()
"""


@pytest.mark.processes
def test_in_a_group_the_state_is_complete_on_every_rank_and_loads_on_any_number(
    tmp_path: Path, tokenizer: Any, tokenizer_folder: Path
) -> None:
    corpus(tmp_path / "corpus", "jsonl", [40, 25, 33], words=40)
    config = stream(tmp_path / "corpus", "jsonl", tokenizer)
    reference = global_rows(Run.start(config, 1, 1).take(60))
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    rest = [str(tmp_path), str(tokenizer_folder), str(CACHE)]
    ranks = [subprocess.Popen([*command, str(rank), *rest], env=environment) for rank in range(2)]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    zero, one = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert zero["state"] == one["state"]
    assert sorted(zero["state"]["lanes"]) == ["0", "1", "2", "3"]
    assert zero["state"]["rows"] == 30
    for rank, said in enumerate((zero, one)):
        rows = [row for batch in said["ids"] for row in batch]
        assert [tuple(row) for row in rows] == [reference[t * 2 + rank] for t in range(15)]
    for world in (1, 3):
        resumed = global_rows(Run.start(config, world, 2, state=one["state"]).take(3), after=30)
        assert resumed == {g: reference[g] for g in range(30, 30 + 6 * world)}


ONCE = """
import sys
from datetime import timedelta
from pathlib import Path
import torch.distributed as dist
from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.errors import StreamfeedError
from streamfeed.topology import Ranks

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=3, timeout=timedelta(0, 30))

def make():
    (folder / f"made-by-{rank}").touch()
    return {"rank": rank}

def fail():
    raise RuntimeError("no such bucket")

ranks = Ranks.find()
assert ranks.once(make) == {"rank": 0}
assert Ranks.find(0, 2, environment={}).once(lambda: rank) == rank, "a group of another size is another group"
try:
    ranks.once(fail)
except (StreamfeedError, RuntimeError) as error:
    (folder / f"{rank}.txt").write_text(str(error))
dist.destroy_process_group()
"""


@pytest.mark.processes
def test_one_rank_lists_for_all_and_its_error_is_everyones(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(ONCE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [subprocess.Popen([sys.executable, str(script), str(r), str(tmp_path)], env=environment) for r in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    assert [path.name for path in tmp_path.glob("made-by-*")] == ["made-by-0"]
    assert all("no such bucket" in (tmp_path / f"{rank}.txt").read_text() for rank in range(3))


def test_ranks_on_one_machine_share_its_cores() -> None:
    alone = cores_of_rank({})
    assert alone >= 1
    assert cores_of_rank({"LOCAL_WORLD_SIZE": "1"}) == alone
    assert cores_of_rank({"LOCAL_WORLD_SIZE": str(2 * alone)}) == 1
    assert cores_of_rank({"LOCAL_WORLD_SIZE": "many"}) == alone
