"""Leak: documents that are packed into one row do not see each other."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.streams import CACHE, InProcessLoader, corpus, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


Batch = dict[str, torch.Tensor]

pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On so small a model threads only wait for each other, for seconds where the machine has other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(attention: str, vocab_size: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config).float().eval()


@pytest.fixture
def batches(tmp_path: Path, tokenizer: Any) -> list[Batch]:
    """Rows of several documents, documents over several rows, and padding."""
    corpus(tmp_path, "jsonl", [13, 9], words=30)
    loader = InProcessLoader(stream(tmp_path, "jsonl", tokenizer, epochs=1, seq_len=96, lanes=3), 4, cache_dir=CACHE)
    found = list(loader)
    assert len(found) > 1
    return found


def pieces(batch: Batch) -> Iterator[tuple[int, slice]]:
    """Yield the row and columns of every document's piece."""
    for row, positions in enumerate(batch["position_ids"].numpy()):
        begins = [*np.flatnonzero(positions == 0).tolist(), len(positions)]
        yield from ((row, slice(begin, end)) for begin, end in itertools.pairwise(begins))


def furthest(network: LlamaForCausalLM, batches: list[Batch], *, use_cache: bool) -> float:
    """Return how far a packed logit is from the same piece's alone, at most."""
    worst = 0.0
    count = 0
    with torch.no_grad():
        for batch in batches:
            inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
            packed = network(**inputs, use_cache=use_cache).logits
            for row, columns in pieces(batch):
                alone = network(input_ids=batch["input_ids"][row : row + 1, columns], use_cache=False).logits[0]
                worst = max(worst, float((packed[row, columns] - alone).abs().max()))
                count += 1
    assert count > 1.5 * sum(len(batch["input_ids"]) for batch in batches)
    return worst


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_logits_are_those_of_each_document_alone(attention: str, batches: list[Batch], tokenizer: Any) -> None:
    assert furthest(model(attention, len(tokenizer)), batches, use_cache=False) < 1e-4


def test_with_a_cache_documents_see_each_other_so_this_test_can_fail(batches: list[Batch], tokenizer: Any) -> None:
    assert furthest(model("sdpa", len(tokenizer)), batches, use_cache=True) > 1e-2
