"""Coverage: one finite epoch hands out every document exactly once, whatever the topology and the shards."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.corpora import KINDS, TOKENS, id_of
from tests.streams import Batches, Run, corpus, documents, stream

if TYPE_CHECKING:
    from pathlib import Path

RANKS, WORKERS, SHARDS = (1, 2, 3), (0, 1, 2, 4), (1, 2, 3, 5, 8)

pytestmark = pytest.mark.usefixtures("one_engine")


def ids_of(tokenizer: Any, per_rank: list[Batches], lanes: int) -> Counter[int]:
    return Counter(id_of(text) for text in tokenizer.batch_decode(documents(per_rank, lanes, tokenizer.eos_token_id)))


@pytest.mark.parametrize("kind", [*KINDS, TOKENS])
@pytest.mark.parametrize("shards", SHARDS)
def test_an_epoch_hands_out_every_document_once(kind: str, shards: int, tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, kind, [7 + 3 * index for index in range(shards)])
    for ranks, workers in itertools.product(RANKS, WORKERS):
        lanes = (1, 6)[(ranks + workers // 2) % 2]
        config = stream(tmp_path, kind, tokenizer, epochs=1, lanes=lanes)
        per_rank = Run.start(config, ranks, 2, workers).take()
        assert ids_of(tokenizer, per_rank, lanes) == Counter(range(len(texts))), (ranks, workers, lanes)


@pytest.mark.parametrize("kind", [*KINDS, TOKENS])
def test_every_epoch_of_a_repeating_stream_hands_out_every_document_once(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    texts = corpus(tmp_path, kind, [11, 8, 5])
    config = stream(tmp_path, kind, tokenizer, epochs=3, lanes=4)
    per_rank = Run.start(config, 2, 3).take()
    assert ids_of(tokenizer, per_rank, 4) == Counter(dict.fromkeys(range(len(texts)), 3))


def test_the_texts_are_those_of_the_shards_to_the_character(tmp_path: Path, tokenizer: Any) -> None:
    found: dict[str, list[str]] = {}
    for kind in [*KINDS, TOKENS]:
        texts = corpus(tmp_path / kind, kind, [40, 25], words=200)
        config = stream(tmp_path / kind, kind, tokenizer, epochs=1, lanes=3)
        ids = documents(Run.start(config, 1, 2).take(), 3, tokenizer.eos_token_id)
        found[kind] = sorted(tokenizer.batch_decode(ids))
        assert found[kind] == sorted(texts)
    assert all(texts == found[KINDS[0]] for kind, texts in found.items() if kind != "lines")


def test_without_shuffling_one_lane_gives_the_listed_order(tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, "parquet", [30, 10, 20])
    config = stream(tmp_path, "parquet", tokenizer, epochs=1, lanes=1, shuffle_buffer=0)
    ids = documents(Run.start(config, 1, 4).take(), 1, tokenizer.eos_token_id)
    assert tokenizer.batch_decode(ids) == texts


def test_with_shuffling_epochs_and_seeds_have_orders_of_their_own(tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, "jsonl", [60])
    orders = set()
    for seed in (0, 1):
        config = stream(tmp_path, "jsonl", tokenizer, epochs=2, lanes=1, shuffle_buffer=1000, seed=seed)
        found = tokenizer.batch_decode(documents(Run.start(config, 1, 4).take(), 1, tokenizer.eos_token_id))
        orders |= {tuple(found[:60]), tuple(found[60:])}
    assert len(orders) == 4
    assert all(sorted(order) == sorted(texts) for order in orders)
