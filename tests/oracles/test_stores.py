"""Coverage, topology and resume where the shards are in a store: S3 (a real server) and HTTP, hosts in this process."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.corpora import id_of
from tests.remotes import STORES, Shelf
from tests.streams import Batches, Run, documents, equal, global_rows, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed import StreamConfig
    from tests.servers.seaweed import Seaweed

KINDS = ("parquet", "jsonl.zst", "tar")

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_engine")]


@pytest.fixture(scope="module")
def shelf(seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path_factory.mktemp("shelf"), seaweed.bucket("shelf"))
    yield shelf
    shelf.web.close()


def ids_of(tokenizer: Any, per_rank: list[Batches], lanes: int) -> Counter[int]:
    return Counter(id_of(text) for text in tokenizer.batch_decode(documents(per_rank, lanes, tokenizer.eos_token_id)))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_hands_out_every_document_once(shelf: Shelf, tokenizer: Any, store: str, kind: str) -> None:
    cases = [(1, 1, 0), (3, 3, 1), (5, 1, 4), (8, 2, 0)]
    for shards, ranks, workers in cases:
        shelved = shelf.corpus(kind, [7 + 3 * index for index in range(shards)])
        lanes = (1, 6)[(ranks + workers // 2) % 2]
        per_rank = Run.start(shelved.stream(store, tokenizer, epochs=1, lanes=lanes), ranks, 2, workers).take()
        assert ids_of(tokenizer, per_rank, lanes) == Counter(range(len(shelved.texts))), (shards, ranks, workers)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["parquet", "jsonl.zst"])
def test_a_store_gives_the_rows_of_the_local_folder(shelf: Shelf, tokenizer: Any, store: str, kind: str) -> None:
    shelved = shelf.corpus(kind, [20, 13, 16], words=40)
    here = take(Run.start(shelved.stream("local", tokenizer), 1, 2, 2).loaders[0], 30)
    assert equal(take(Run.start(shelved.stream(store, tokenizer), 1, 2, 2).loaders[0], 30), here)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_topology_gives_the_same_rows_also_across_a_resume(
    shelf: Shelf, tokenizer: Any, store: str, kind: str
) -> None:
    config = shelf.corpus(kind, [15, 8, 12], words=40).stream(store, tokenizer, lanes=6)
    reference = rows_of(Run.start(config, 1, 1), 90)
    states: dict[int, dict[str, Any]] = {}
    for ranks, workers in [(1, 2), (3, 1)]:
        run = Run.start(config, ranks, 3, workers)
        rows = rows_of(run, 24 // (3 * ranks))
        assert rows == {g: reference[g] for g in range(len(rows))}, (ranks, workers)
        states[ranks] = run.state()
    for (before, state), (behind, workers) in itertools.product(states.items(), [(2, 1), (3, 0)]):
        rows = rows_of(Run.start(config, behind, 2, workers, state), 3, after=state["rows"])
        assert rows == {g: reference[g] for g in range(state["rows"], state["rows"] + 6 * behind)}, (before, behind)


def rows_of(run: Run, batches: int, after: int = 0) -> dict[int, tuple[int, ...]]:
    return global_rows(run.take(batches), after)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", KINDS)
def test_resumes_exactly_at_every_seventh_batch_of_a_finite_pass(
    shelf: Shelf, tokenizer: Any, store: str, kind: str
) -> None:
    config = shelf.corpus(kind, [20, 13, 16], words=16).stream(store, tokenizer, shuffle_buffer=12, epochs=2)
    whole, states = every_state(config)
    assert len(whole) > 20
    for taken in range(0, len(states), 7):
        rest = whole[taken : taken + 8]
        resumed = Run.start(config, 1, 2, 2, states[taken]).loaders[0]
        assert equal(take(resumed, len(rest)), rest), f"resumed behind batch {taken}"


def every_state(config: StreamConfig) -> tuple[Batches, list[dict[str, Any]]]:
    run = Run.start(config, 1, 2, 2)
    whole: Batches = []
    states = [run.state()]
    while batch := take(run.loaders[0], 1):
        whole += batch
        states.append(run.state())
    return whole, states


def test_a_resume_crosses_from_a_store_to_the_local_copy_and_back(shelf: Shelf, tokenizer: Any) -> None:
    shelved = shelf.corpus("jsonl.zst", [20, 13, 16], words=40)
    whole = take(Run.start(shelved.stream("local", tokenizer), 1, 2).loaders[0], 24)
    found: Batches = []
    state = None
    for store in ("s3", "local", "http", "s3"):
        run = Run.start(shelved.stream(store, tokenizer), 1, 2, state=state)
        found += take(run.loaders[0], 6)
        state = run.state()
    assert equal(found, whole)
