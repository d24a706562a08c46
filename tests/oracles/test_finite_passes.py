"""Finite passes on several ranks: all end at the same batch, a property of the stream; nothing is lost or repeated."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamfeed import Source, StreamConfig
from streamfeed.errors import BudgetError, CorruptShardError, EmptyStreamError, RankError
from streamfeed.loader import loader as loader_module
from streamfeed.objectives import Classification, Lm, Mlm, Objective
from streamfeed.topology import Ranks
from tests.corpora import TOPOLOGY_KINDS, id_of, write_records
from tests.oracles.test_objectives import records
from tests.streams import CACHE, Batches, InProcessLoader, corpus, documents, global_rows, stream, take
from tests.threads import ThreadRanks, on_ranks
from tests.tokenizers_for_tests import build_bert

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")

TOPOLOGIES = [(1, 4, 0), (2, 2, 0), (2, 1, 2), (3, 1, 2), (3, 3, 0), (4, 2, 3), (5, 1, 1), (7, 2, 0)]
"""Ranks, rows of a rank's batch, and workers."""


@pytest.fixture(autouse=True)
def ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found(Ranks):
        @classmethod
        def find(cls, rank: Any = None, world_size: Any = None, group: Any = None, environment: Any = None) -> Any:
            return group if isinstance(group, ThreadRanks) else Ranks(rank or 0, world_size or 1)

    monkeypatch.setattr(loader_module, "Ranks", Found)


def loader_on(
    ranks: ThreadRanks, config: StreamConfig, batch: int, workers: int, state: dict[str, Any] | None = None
) -> InProcessLoader:
    group: Any = ranks if ranks.size > 1 else None
    loader = InProcessLoader(
        config, batch, workers=workers, rank=ranks.number, world_size=ranks.size, cache_dir=CACHE, group=group
    )
    if state is not None:
        loader.load_state_dict(state)
    return loader


def passes(config: StreamConfig, ranks: int, batch: int, workers: int, count: int = 1) -> list[list[Batches]]:
    """Return ``count`` passes, each by rank."""

    def work(own: ThreadRanks) -> list[Batches]:
        loader = loader_on(own, config, batch, workers)
        return [take(loader) for _ in range(count)]

    return [list(one) for one in zip(*on_ranks(ranks, work), strict=True)]


@pytest.mark.parametrize("kind", TOPOLOGY_KINDS)
@pytest.mark.parametrize("shards", [(3, 8, 5), (4,), (3, 3, 7, 6, 8, 5)], ids=len)
def test_three_passes_end_at_the_same_batch_on_every_rank_and_lose_nothing(
    kind: str, shards: tuple[int, ...], tmp_path: Path, tokenizer: Any
) -> None:
    texts = corpus(tmp_path, kind, shards)
    config = stream(tmp_path, kind, tokenizer, epochs=1, lanes=4)
    reference = [global_rows(one) for one in passes(config, 1, 1, 0, count=3)]
    for ranks, batch, workers in TOPOLOGIES:
        for number, per_rank in enumerate(passes(config, ranks, batch, workers, count=3)):
            steps = -(-len(reference[number]) // (ranks * batch))
            assert [len(batches) for batches in per_rank] == [steps] * ranks, (ranks, batch, workers)
            rows = global_rows(per_rank)
            assert {g: rows[g] for g in reference[number]} == reference[number]
            behind = [g for g in rows if g not in reference[number]]
            labels = global_rows(per_rank, name="labels")
            assert all(set(labels[g]) == {-100} for g in behind)
            found = tokenizer.batch_decode(documents(per_rank, 4, tokenizer.eos_token_id))
            assert Counter(id_of(text) for text in found) == Counter(range(len(texts)))


def test_a_resume_at_every_batch_ends_at_the_same_step_on_other_ranks(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [7, 3, 8, 4], words=30)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=2, lanes=4)
    reference = global_rows(passes(config, 1, 1, 0)[0])
    last = -(-len(reference) // 12)

    def save(own: ThreadRanks) -> list[str]:
        loader = loader_on(own, config, 3, 2)
        states = [json.dumps(loader.state_dict()), *(json.dumps(loader.state_dict()) for _ in loader)]
        assert loader.state_dict()["ended"]
        return states

    states = on_ranks(4, save)[0]
    assert len(states) == last + 1
    for step, state in enumerate(states[:-1]):
        for ranks, batch, workers in ((1, 12, 2), (2, 6, 0), (3, 4, 1), (6, 2, 0)):
            per_rank = on_ranks(
                ranks,
                lambda own, w=workers, b=batch, s=state: take(loader_on(own, config, b, w, json.loads(s))),  # type: ignore[misc]
            )
            assert [len(batches) for batches in per_rank] == [last - step] * ranks
            rows = global_rows(per_rank, after=step * 12)
            assert all(rows[g] == row for g, row in reference.items() if g >= step * 12)


def test_ranks_vote_seldom_and_none_where_the_stream_repeats(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [300], words=60)

    def votes(epochs: int | None) -> list[tuple[int, int]]:
        config = stream(tmp_path, "jsonl", tokenizer, epochs=epochs, lanes=4)

        def work(own: ThreadRanks) -> tuple[int, int]:
            loader = loader_on(own, config, 1, 0)
            count = len(take(loader, None if epochs else 200))
            voters = loader._voters
            return count, voters.asked if isinstance(voters, ThreadRanks) else 0

        return on_ranks(2, work)

    count, asked = votes(1)[0]
    assert count > 300
    assert asked * 10 < count
    assert votes(None) == [(200, 0), (200, 0)]


@pytest.mark.parametrize("objective", ["lm_alone", "classes", "masked"])
def test_ranks_without_rows_hand_out_batches_of_the_usual_columns_without_labels(
    objective: str, tmp_path: Path, tokenizer: Any
) -> None:
    """Three records on five ranks: the metric over all ranks is that of one."""
    write_records("jsonl", tmp_path / "three.jsonl", records(3))
    settings: dict[str, Objective] = {
        "lm_alone": Lm(),
        "classes": Classification(text_pair="pair", names=("no", "yes", "maybe")),
        "masked": Mlm(),
    }
    config = StreamConfig(
        [Source(str(tmp_path / "three.jsonl"))],
        tokenizer=tokenizer if objective == "lm_alone" else str(build_bert(tmp_path / "bert")),
        seq_len=64,
        packing="none",
        epochs=1,
        shuffle_buffer=0,
        objective=settings[objective],
    )
    one = passes(config, 1, 4, 0)[0][0]
    for ranks, batch in ((3, 1), (3, 2), (5, 1), (2, 8)):
        per_rank = passes(config, ranks, batch, 0)[0]
        assert [len(batches) for batches in per_rank] == [1] * ranks
        for batches in per_rank:
            assert batches[0].keys() == one[0].keys()
            assert [column.ndim for column in batches[0].values()] == [column.ndim for column in one[0].values()]
        labels = np.concatenate([batches[0]["labels"].reshape(-1) for batches in per_rank])
        assert sorted(labels[labels != -100]) == sorted(one[0]["labels"][one[0]["labels"] != -100])


def test_a_pass_without_any_row_is_an_error_on_every_rank(tmp_path: Path, tokenizer: Any) -> None:
    (tmp_path / "null.jsonl").write_text('{"text": null}\n' * 5)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=1)

    def work(own: ThreadRanks) -> str:
        with pytest.raises(EmptyStreamError) as caught:
            take(loader_on(own, config, 1, 0))
        assert caught.value.told_to_all, "one rank says it for all"
        return str(caught.value)

    assert all("the pass gave no row" in said for said in on_ranks(3, work))


def test_the_other_ranks_hear_of_one_that_fails_to_read(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "parquet", [40, 40], words=60)
    config = stream(tmp_path, "parquet", tokenizer, epochs=1, lanes=2, shuffle_buffer=4)

    def work(own: ThreadRanks) -> type[BaseException]:
        loader = loader_on(own, config, 1, 0)
        iterator = iter(loader)
        for batch in range(10_000):
            if own.number == 1 and batch == 5:
                replace_next(loader._turns)
            try:
                next(iterator)
            except (RankError, CorruptShardError) as error:
                return type(error)
        raise AssertionError("never ended")

    assert on_ranks(3, work) == [RankError, CorruptShardError, RankError]


def test_the_other_ranks_hear_of_one_whose_budget_of_bad_records_is_spent(tmp_path: Path, tokenizer: Any) -> None:
    """Its lanes are within the budget each, and together above it: the rank itself finds that out."""
    corpus(tmp_path, "jsonl", [40, 40], words=60)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=2, shuffle_buffer=4, on_error="skip")

    def work(own: ThreadRanks) -> type[BaseException]:
        loader = loader_on(own, config, 1, 0)
        if own.number == 1:
            loader._check_budget = spent  # type: ignore[method-assign]
        try:
            take(loader)
        except (RankError, BudgetError) as error:
            return type(error)
        raise AssertionError("never ended")

    assert on_ranks(3, work) == [RankError, BudgetError, RankError]


def spent(states: tuple[bytes, ...]) -> None:
    raise BudgetError("4 skipped: more than skip_budget=3")


def replace_next(turns: Any) -> None:
    """Make a loader fail as on a shard that ends in the middle."""

    def fails() -> None:
        raise CorruptShardError("b.parquet", "byte 4096", "the file ends here")

    turns._reader.next = fails
