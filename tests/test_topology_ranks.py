"""Who we are among the ranks, and states that are complete on every rank of a real group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import topology
from streamfeed.errors import ConfigError
from streamfeed.topology import Ranks, cores_of_rank
from tests.streams import Run, corpus, global_rows, stream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributed.pool import RankPool


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


@pytest.mark.processes
def test_in_a_group_the_state_is_complete_on_every_rank_and_loads_on_any_number(
    tmp_path: Path, tokenizer: Any, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    corpus(tmp_path / "corpus", "jsonl", [40, 25, 33], words=40)
    config = stream(tmp_path / "corpus", "jsonl", tokenizer)
    reference = global_rows(Run.start(config, 1, 1).take(60))
    common = {"corpus": str(tmp_path / "corpus"), "tokenizer": str(tokenizer_folder), "workers": 0}
    zero, one = rank_pool.run(tmp_path / "ranks", "tests.distributed.work:save", 2, {"batch": 3, "steps": 5, **common})
    assert zero["state"] == one["state"]
    assert sorted(zero["state"]["lanes"]) == ["0", "1", "2", "3"]
    assert zero["state"]["rows"] == 30
    for rank, said in enumerate((zero, one)):
        assert [tuple(row) for row in said["rows"]] == [reference[t * 2 + rank] for t in range(15)]
    for world in (1, 3):
        resumed = global_rows(Run.start(config, world, 2, state=one["state"]).take(3), after=30)
        assert resumed == {g: reference[g] for g in range(30, 30 + 6 * world)}


@pytest.mark.processes
def test_one_rank_lists_for_all_and_its_error_is_everyones(tmp_path: Path, rank_pool: RankPool) -> None:
    heard = rank_pool.run(tmp_path / "ranks", "tests.distributed.work:once", 3, {"folder": str(tmp_path)})
    assert [path.name for path in tmp_path.glob("made-by-*")] == ["made-by-0"]
    assert all("no such bucket" in error for error in heard)


def test_ranks_on_one_machine_share_its_cores() -> None:
    alone = cores_of_rank({})
    assert alone >= 1
    assert cores_of_rank({"LOCAL_WORLD_SIZE": "1"}) == alone
    assert cores_of_rank({"LOCAL_WORLD_SIZE": str(2 * alone)}) == 1
    assert cores_of_rank({"LOCAL_WORLD_SIZE": "many"}) == alone
