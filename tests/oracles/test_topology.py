"""Topology: the same rows in the same order for every number of ranks and workers, and across every resume between."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.corpora import TOKENS, TOPOLOGY_KINDS
from tests.streams import Run, corpus, global_rows, stream

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed import StreamConfig

RANKS = (1, 2, 3, 4, 5, 7)
NAMES = ("input_ids", "labels", "position_ids")
LANES = 6
ROWS = 105

pytestmark = pytest.mark.usefixtures("one_engine")


def rows_of(run: Run, batches: int | None, after: int = 0) -> dict[str, dict[int, tuple[int, ...]]]:
    per_rank = run.take(batches)
    return {name: global_rows(per_rank, after, name) for name in NAMES}


@pytest.fixture
def config(request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Any) -> StreamConfig:
    kind = request.param
    corpus(tmp_path, kind, [15, 8, 12], words=40)
    return stream(tmp_path, kind, tokenizer, lanes=LANES)


@pytest.mark.parametrize("config", [*TOPOLOGY_KINDS, TOKENS], indirect=True)
def test_every_topology_gives_the_same_rows(config: StreamConfig) -> None:
    reference = rows_of(Run.start(config, 1, 1), ROWS)
    for ranks, workers in itertools.product(RANKS, (0, 2, 4)):
        rows = rows_of(Run.start(config, ranks, 3, workers), ROWS // (3 * ranks))
        for name in NAMES:
            assert len(rows[name]) == ROWS // (3 * ranks) * 3 * ranks
            assert all(rows[name][g] == reference[name][g] for g in rows[name]), (ranks, workers, name)


@pytest.mark.parametrize("config", [*TOPOLOGY_KINDS, TOKENS], indirect=True)
def test_every_pair_of_topologies_gives_the_same_rows_across_a_resume(config: StreamConfig) -> None:
    reference = rows_of(Run.start(config, 1, 1), 110)
    states = {}
    for before in RANKS:
        run = Run.start(config, before, 3, workers=before % 3)
        run.take(24 // (3 * before) + 1)
        states[before] = run.state()
    for (before, state), behind in itertools.product(states.items(), RANKS):
        resumed = rows_of(Run.start(config, behind, 2, workers=behind % 4, state=state), 4, after=state["rows"])
        for name in NAMES:
            assert sorted(resumed[name]) == list(range(state["rows"], state["rows"] + 8 * behind))
            assert all(resumed[name][g] == reference[name][g] for g in resumed[name]), (before, behind, name)


@pytest.mark.parametrize("config", ["jsonl", "tar"], indirect=True)
def test_topologies_may_change_at_every_stop(config: StreamConfig) -> None:
    reference = rows_of(Run.start(config, 1, 1), 260)["input_ids"]
    state: dict[str, Any] | None = None
    after = 0
    for ranks, workers, batch_size, batches in [
        (3, 0, 1, 5),
        (2, 1, 3, 4),
        (7, 2, 1, 3),
        (1, 4, 5, 1),
        (4, 3, 2, 6),
        (5, 0, 3, 2),
    ]:
        run = Run.start(config, ranks, batch_size, workers, state)
        rows = rows_of(run, batches, after)["input_ids"]
        assert rows == {g: reference[g] for g in range(after, after + ranks * batch_size * batches)}
        state = run.state()
        after = state["rows"]
    assert after == 15 + 24 + 21 + 5 + 48 + 30


@pytest.mark.parametrize("config", ["parquet", "jsonl.zst"], indirect=True)
def test_a_finite_pass_has_the_same_rows_on_every_topology(config: StreamConfig) -> None:
    finite = replace(config, epochs=1)
    reference = without_empty(rows_of(Run.start(finite, 1, 1), None)["input_ids"])
    for ranks, workers in itertools.product(RANKS, (0, 3)):
        rows = without_empty(rows_of(Run.start(finite, ranks, 2, workers), None)["input_ids"])
        assert rows == reference, (ranks, workers)


def without_empty(rows: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Leave out rows of nothing but padding: ranks end with their own lanes."""
    return {g: row for g, row in rows.items() if any(row)}
