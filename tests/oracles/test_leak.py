"""Leak: documents that are packed into one row do not see each other, with every attention that the main job offers."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from streamfeed.errors import ConfigError
from streamfeed.train.attention import Inputs, choose_inputs, isolates
from tests.streams import CACHE, InProcessLoader, corpus, stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


Batch = dict[str, torch.Tensor]

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
CAUSAL: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 16},
    "GPT2": SIZES,
    "GPTNeoX": SIZES,
}
ENCODERS: dict[str, dict[str, Any]] = {"Bert": SIZES, "Roberta": {**SIZES, "pad_token_id": 1}}
ATTENTIONS = ["eager", "sdpa", "flex_attention"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On so small a model threads only wait for each other, for seconds where the machine has other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(kind: str, attention: str, vocabulary: int) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=vocabulary, **{**CAUSAL, **ENCODERS, **OTHERS}[kind])
    auto = AutoModelForMaskedLM if kind in ENCODERS or kind == "ModernBert" else AutoModelForCausalLM
    return auto.from_config(config, attn_implementation=attention).float().eval()


OTHERS: dict[str, dict[str, Any]] = {
    "OPT": {**SIZES, "ffn_dim": 96, "word_embed_proj_dim": 48, "pad_token_id": 1},
    "Bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 4},
    "Mistral": {**GROUPED, "sliding_window": 8},
    "ModernBert": {**SIZES, "pad_token_id": 1, "cls_token_id": 2, "sep_token_id": 3},
}


def uncompiled(attention: str) -> AbstractContextManager[Any]:
    """Flex attention without its compiler, which takes half a minute for each shape on a CPU: the same mask, slowly."""
    return torch.compiler.set_stance("force_eager") if attention == "flex_attention" else nullcontext()


@pytest.fixture
def batches(tmp_path: Path, tokenizer: Any, one_engine: None) -> list[Batch]:
    """Rows of several documents, documents over several rows, and padding."""
    corpus(tmp_path, "jsonl", [13, 9], words=30)
    loader = InProcessLoader(stream(tmp_path, "jsonl", tokenizer, epochs=1, seq_len=96, lanes=3), 4, cache_dir=CACHE)
    found = list(loader)
    assert len(found) > 1
    return found


def by_hand() -> list[Batch]:
    """One batch of two rows: documents of 1 to 30 tokens, the last of each row up to its end."""
    ids = torch.randint(2, 64, (2, 48), generator=torch.Generator().manual_seed(1))
    cuts = [[0, 7, 8, 20, 48], [0, 15, 16, 17, 33, 48]]
    positions = [torch.cat([torch.arange(end - begin) for begin, end in itertools.pairwise(row)]) for row in cuts]
    return [{"input_ids": ids, "position_ids": torch.stack(positions)}]


def pieces(batch: Batch) -> Iterator[tuple[int, slice]]:
    """Yield the row and columns of every document's piece."""
    for row, positions in enumerate(batch["position_ids"].numpy()):
        begins = [*np.flatnonzero(positions == 0).tolist(), len(positions)]
        yield from ((row, slice(begin, end)) for begin, end in itertools.pairwise(begins))


def furthest(network: Any, inputs: Inputs, batches: list[Batch], **override: Any) -> float:
    """Return how far a packed logit is from the same piece's alone, at most."""
    worst = 0.0
    count = 0
    alone_inputs = {"use_cache": False} if inputs.causal else {}
    with torch.no_grad(), uncompiled(inputs.attention):
        for batch in batches:
            packed = network(**{**inputs(batch), **override}).logits
            for row, columns in pieces(batch):
                alone = network(input_ids=batch["input_ids"][row : row + 1, columns], **alone_inputs).logits[0]
                worst = max(worst, float((packed[row, columns] - alone).abs().max()))
                count += 1
    assert count > 1.5 * sum(len(batch["input_ids"]) for batch in batches)
    return worst


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_logits_are_those_of_each_document_alone(attention: str, batches: list[Batch], tokenizer: Any) -> None:
    network = model("Llama", attention, len(tokenizer))
    inputs = choose_inputs(network, causal=True, packed=True)
    assert furthest(network, inputs, batches) < 1e-5
    assert furthest(network, inputs, batches, use_cache=True) > 1e-2, "with a cache they leak, so this test can fail"


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("kind", list(CAUSAL))
def test_causal_models_keep_documents_apart_and_with_a_cache_do_not(kind: str, attention: str) -> None:
    if (kind, attention) == ("GPT2", "flex_attention"):
        pytest.skip("transformers has no flex attention for GPT-2, and says so")
    network = model(kind, attention, 64)
    with uncompiled(attention):
        inputs = choose_inputs(network, causal=True, packed=True)
    assert inputs.isolation == "positions"
    assert "attention_mask" not in inputs(by_hand()[0])
    assert furthest(network, inputs, by_hand()) < 1e-5
    assert furthest(network, inputs, by_hand(), use_cache=True) > 1e-2


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_mask_of_documents_does_what_positions_do(attention: str) -> None:
    network = model("Llama", attention, 64)
    inputs = Inputs.of(network, "documents", causal=True)
    assert furthest(network, inputs, by_hand()) < 1e-5
    assert furthest(network, inputs, by_hand(), attention_mask=None, use_cache=True) > 1e-2


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("kind", list(ENCODERS))
def test_encoders_keep_documents_apart_in_both_directions_and_without_the_mask_do_not(
    kind: str, attention: str
) -> None:
    network = model(kind, attention, 64)
    with uncompiled(attention):
        inputs = choose_inputs(network, causal=False, packed=True)
    assert inputs.isolation == "documents"
    assert furthest(network, inputs, by_hand()) < 1e-5
    assert furthest(network, inputs, by_hand(), attention_mask=None) > 1e-3


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_that_does_not_heed_positions_is_given_a_mask(attention: str) -> None:
    network = model("OPT", attention, 64)
    assert not isolates(network, Inputs.of(network, "positions", causal=True))
    inputs = choose_inputs(network, causal=True, packed=True)
    assert inputs.isolation == "documents"
    assert furthest(network, inputs, by_hand()) < 1e-5


@pytest.mark.parametrize("kind", ["Bloom", "ModernBert"])
def test_a_model_that_would_leak_or_lose_its_windows_is_refused(kind: str) -> None:
    network = model(kind, "eager", 64)
    with pytest.raises(ConfigError, match=r"ForCausalLM|ForMaskedLM.* see each other.*set data\.packing to none"):
        choose_inputs(network, causal=kind == "Bloom", packed=True)
    assert choose_inputs(network, causal=kind == "Bloom", packed=False).isolation == "padding"


def test_windows_of_attention_stay_within_documents() -> None:
    network = model("Mistral", "sdpa", 64)
    assert furthest(network, choose_inputs(network, causal=True, packed=True), by_hand()) < 1e-5


@pytest.mark.parametrize("kind", ["Llama", "Bert", "Roberta"])
def test_padding_changes_no_logit_whatever_ids_it_has_and_an_empty_row_is_finite(kind: str) -> None:
    network = model(kind, "sdpa", 64)
    inputs = choose_inputs(network, causal=kind == "Llama", packed=False)
    ids = by_hand()[0]["input_ids"][:, :12].clone()
    ids[1] = 1
    ids[0, 5] = 1  # the id of the pad in a text: it is masked by length, never by id
    mask = torch.zeros_like(ids)
    mask[0, :9] = 1
    with torch.no_grad():
        padded = network(**inputs({"input_ids": ids, "attention_mask": mask})).logits
        cut = {"input_ids": ids[:1, :9], "attention_mask": mask[:1, :9]}
        alone = network(**inputs(cut)).logits
    assert float((padded[0, :9] - alone[0]).abs().max()) < 1e-5
    assert bool(padded.isfinite().all())
