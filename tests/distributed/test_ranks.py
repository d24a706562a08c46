"""Real processes in a gloo group: the oracles on every number of ranks, uneven ends, and deaths."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import StreamLoader
from tests.corpora import id_of
from tests.streams import CACHE, Run, corpus, global_rows, stream, take

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributed.pool import RankPool

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]
WORK = "tests.distributed.work"
UNEVEN = [3, 8, 5, 4, 7]


def by_number(per_rank: list[Any], after: int = 0) -> dict[int, tuple[int, ...]]:
    """Return the ranks' rows by their number in the stream."""
    ranks = len(per_rank)
    return {
        (max(0, -(-(after - rank) // ranks)) + index) * ranks + rank: tuple(row)
        for rank, rows in enumerate(per_rank)
        for index, row in enumerate(rows)
    }


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_uneven_shards_never_hang_and_give_every_document_once_a_pass(
    size: int, tmp_path: Path, tokenizer: Any, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    """Every topology with a collective in every step, over three passes or epochs, workers kept between or not."""
    texts = corpus(tmp_path / "corpus", "jsonl", UNEVEN)
    alone = StreamLoader(stream(tmp_path / "corpus", "jsonl", tokenizer, epochs=1), 1, cache_dir=CACHE)
    singles = [global_rows([take(alone)]) for _ in range(3)]
    whole = global_rows(
        [take(StreamLoader(stream(tmp_path / "corpus", "jsonl", tokenizer, epochs=3), 1, cache_dir=CACHE))]
    )
    cases = [{"num_workers": workers, "passes": 3, "epochs": 1} for workers in (0, 1, 2)]
    cases += [{"num_workers": 2, "passes": 1, "epochs": 3}]
    per_rank = rank_pool.run(
        tmp_path / "ranks",
        f"{WORK}:passes",
        size,
        {"corpus": str(tmp_path / "corpus"), "tokenizer": str(tokenizer_folder), "batch": 2, "cases": cases},
    )
    for index, case in enumerate(cases):
        references = singles if case["epochs"] == 1 else [whole]
        for number, reference in enumerate(references):
            rows = [rank[index][number] for rank in per_rank]
            assert {len(some) for some in rows} == {-(-len(reference) // (2 * size)) * 2}, case
            found = by_number(rows)
            assert {g: found[g] for g in reference} == reference, case
    eos = tokenizer.eos_token_id
    lanes = [[t for g, row in sorted(singles[0].items()) if g % 4 == lane for t in row] for lane in range(4)]
    ids = Counter(id_of(tokenizer.decode(list(one))) for lane in lanes for one in _documents(lane, eos))
    assert ids == Counter(range(len(texts))), "the reference itself covers the corpus"


def _documents(tokens: list[int], eos: int) -> list[list[int]]:
    return [list(some) for end, some in itertools.groupby(tokens, lambda token: token == eos) if not end]


def test_a_state_taken_on_two_ranks_goes_on_on_four_and_on_one(
    tmp_path: Path, tokenizer: Any, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    corpus(tmp_path / "corpus", "jsonl", [40, 25, 33], words=40)
    reference = global_rows(Run.start(stream(tmp_path / "corpus", "jsonl", tokenizer), 1, 1).take(110))
    common: dict[str, Any] = {"corpus": str(tmp_path / "corpus"), "tokenizer": str(tokenizer_folder), "workers": 1}
    saved = rank_pool.run(tmp_path / "two", f"{WORK}:save", 2, {"batch": 3, "steps": 7, **common})
    assert saved[0]["state"] == saved[1]["state"]
    assert by_number([one["rows"] for one in saved]) == {g: reference[g] for g in range(42)}
    for size, batch in ((4, 2), (1, 5), (3, 2)):
        rows = rank_pool.run(
            tmp_path / f"{size}",
            f"{WORK}:resume",
            size,
            {"batch": batch, "steps": 6, "state": saved[0]["state"], **common},
        )
        assert by_number(rows, after=42) == {g: reference[g] for g in range(42, 42 + 6 * size * batch)}


def test_the_death_of_a_rank_is_heard_by_the_others_within_seconds(
    tmp_path: Path, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    corpus(tmp_path / "corpus", "jsonl", [30], words=20)
    os.mkfifo(tmp_path / "begun")
    job = rank_pool.start(
        tmp_path / "ranks",
        f"{WORK}:hear_of_a_death",
        3,
        {"corpus": str(tmp_path / "corpus"), "tokenizer": str(tokenizer_folder)},
    )
    with (tmp_path / "begun").open("rb", buffering=0) as begun:
        heard = b""
        while len(heard) < 3:
            heard += begun.read(3)
    job.kill(1)
    assert job.codes() == [0, -9, 0]
    said = (tmp_path / "ranks" / "rank-0.json").read_text()
    assert "RankError" in said
    assert "another rank ended" in said


def test_a_rank_that_fails_to_start_stops_all_with_its_message(tmp_path: Path, rank_pool: RankPool) -> None:
    said = rank_pool.run(tmp_path / "ranks", f"{WORK}:start", 3, {"fails": 1})
    assert said[1] == "OSError: [Errno 28] No space left on device: '/scratch'"
    assert said[0] == said[2] == f"StreamfeedError: rank 1 failed: {said[1]}"


def test_ranks_agree_in_the_default_group_and_in_one_of_a_part_of_the_processes(
    tmp_path: Path, rank_pool: RankPool
) -> None:
    found = rank_pool.run(tmp_path / "ranks", f"{WORK}:groups", 3)
    assert [one[0] for one in found] == [[rank, 3, [3, 3]] for rank in range(3)]
    assert found[1][1:] == [[0, 2, [2, 3]], [1, 2], [2, -1], "made by 1"]
    assert found[2][1:] == [[1, 2, [2, 3]], [1, 2], [2, -1], "made by 1"]
