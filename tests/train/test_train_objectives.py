"""Models and losses of objectives other than the next token, on batches made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import Accelerator
from torch.nn import functional

from streamfeed.encode.tokenizer import TokenizerSpec
from streamfeed.errors import ConfigError
from streamfeed.objectives import Classification, Lm, Mlm, Objective
from streamfeed.train.attention import check_attention
from streamfeed.train.config import ModelConfig
from streamfeed.train.losses import Loss, make_loss
from streamfeed.train.model import build_model
from streamfeed.train.step import backward

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.train.attention import Batch

TINY = ModelConfig(hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32)
TOKENIZER = TokenizerSpec("{}", "fake", 5, None, 0, 64, "fake", mask_id=4, type_ids=True)
CLASSES = Classification(names=["other", "same"])
LENGTH = 16
IGNORED = -100


def tiny(objective: Objective, config: ModelConfig = TINY, weights: Path | None = None) -> Any:
    torch.manual_seed(0)
    return build_model(config, objective, TOKENIZER, LENGTH, weights)


def ids(rows: int) -> torch.Tensor:
    return torch.randint(6, 60, (rows, LENGTH), generator=torch.Generator().manual_seed(rows))


def masked() -> Batch:
    """Four rows of two documents; the third has no label."""
    labels = torch.full((4, LENGTH), IGNORED)
    for row, places in enumerate([(1, 5, 9), (2,), (), (0, 15)]):
        labels[row, list(places)] = torch.tensor([7 + place for place in places], dtype=torch.int64)
    positions = torch.cat([torch.arange(6), torch.arange(LENGTH - 6)]).expand(4, -1)
    return {"input_ids": ids(4).masked_fill(labels != IGNORED, 4), "labels": labels, "position_ids": positions}


def pairs() -> Batch:
    """Four samples of unequal lengths, the last of them an empty row of a lane that has ended."""
    lengths = torch.tensor([16, 9, 3, 0])
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    types = ((torch.arange(LENGTH) >= 2) & (mask > 0)).long()
    labels = torch.tensor([1, 0, 1, IGNORED])
    return {"input_ids": ids(4) * mask, "labels": labels, "attention_mask": mask, "token_type_ids": types}


def rows_of(batch: Batch) -> list[Batch]:
    return [{name: column[row : row + 1] for name, column in batch.items()} for row in range(len(batch["labels"]))]


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(("objective", "batch", "labels"), [(Mlm(), masked(), 6), (CLASSES, pairs(), 3)])
def test_micro_batches_give_the_mean_over_all_labels_however_they_are_spread(
    objective: Objective, batch: Batch, labels: int
) -> None:
    packed = "attention_mask" not in batch
    model = tiny(objective)
    loss = make_loss(objective, model, packed=packed)
    assert loss.count(batch) == labels
    mean = loss.summed(model, batch)[0] / labels
    torch.autograd.backward(mean)
    expected = gradients(model)
    again = tiny(objective)
    total = backward(Accelerator(), again, make_loss(objective, again, packed=packed), rows_of(batch), labels)
    assert float(total) == pytest.approx(mean.item(), rel=1e-6)
    for got, want in zip(gradients(again), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-7)


def test_masked_tokens_are_predicted_at_their_own_place() -> None:
    model, batch = tiny(Mlm()), masked()
    loss = make_loss(Mlm(), model, packed=True)
    with torch.no_grad():
        logits = model(**_inputs(loss)(batch)).logits.log_softmax(-1)
        places = [(row, place) for row, place in (batch["labels"] != IGNORED).nonzero().tolist()]
        by_hand = -sum(logits[row, place, batch["labels"][row, place]].item() for row, place in places)
        assert loss.summed(model, batch)[0].item() == pytest.approx(by_hand, rel=1e-5)
    assert loss.summed(model, batch)[1] is None


def test_a_class_is_predicted_from_ids_types_and_length() -> None:
    model, batch = tiny(CLASSES), pairs()
    loss = make_loss(CLASSES, model, packed=False)
    with torch.no_grad():
        summed, right = loss.summed(model, batch)
        plain = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
        logits = model(**plain).logits[:3]
        untyped = model(input_ids=plain["input_ids"], attention_mask=plain["attention_mask"]).logits[:3]
    assert right is not None
    assert int(right) == int((logits.argmax(-1) == batch["labels"][:3]).sum())
    expected = functional.cross_entropy(logits, batch["labels"][:3], reduction="sum")
    assert float(summed) == pytest.approx(float(expected), rel=1e-5)
    assert not torch.allclose(logits, untyped, atol=1e-5), "the model does use token types"


def test_the_model_knows_its_classes_and_a_checkpoint_keeps_them(tmp_path: Path) -> None:
    model = tiny(CLASSES)
    assert model.config.id2label == {0: "other", 1: "same"}
    model.save_pretrained(tmp_path)
    again = tiny(CLASSES, weights=tmp_path)
    assert again.config.id2label == {0: "other", 1: "same"}
    assert torch.equal(again.classifier.weight, model.classifier.weight)
    assert tiny(Classification(classes=3)).classifier.out_features == 3
    with pytest.raises(ConfigError, match="cannot be made"):
        tiny(Classification(classes=3), weights=tmp_path)


def test_a_masked_model_becomes_a_classifier(tmp_path: Path) -> None:
    tiny(Mlm()).save_pretrained(tmp_path)
    model = tiny(CLASSES, ModelConfig(name_or_path=str(tmp_path)))
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.num_labels == 2


@pytest.mark.parametrize("pad", [None, 60], ids=["the tokenizer's pad", "another pad of its config"])
def test_a_causal_model_classifies_by_its_last_token_in_front_of_the_padding(tmp_path: Path, pad: int | None) -> None:
    causal = tiny(Lm())
    if pad is not None:
        causal.config.pad_token_id = pad
    causal.save_pretrained(tmp_path)
    model = tiny(CLASSES, ModelConfig(name_or_path=str(tmp_path))).eval()
    loss, batch = make_loss(CLASSES, model, packed=False), pairs()
    with torch.no_grad():
        together = model(**_inputs(loss)(batch)).logits[1]
        alone = model(input_ids=batch["input_ids"][1:2, :9]).logits[0]
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_ids_without_an_embedding_are_refused_before_the_first_step(tmp_path: Path) -> None:
    tiny(Mlm()).save_pretrained(tmp_path)
    large = TokenizerSpec("{}", "x", None, None, 0, 1000, "large")
    with pytest.raises(ConfigError, match="ids up to 999, the model embeds 64"):
        build_model(ModelConfig(name_or_path=str(tmp_path)), CLASSES, large, LENGTH, None)


def test_flex_attention_is_refused_where_it_cannot_train() -> None:
    model = tiny(Lm(), ModelConfig(hidden_size=16, num_layers=1, num_heads=2, attention="flex_attention"))
    with pytest.raises(ConfigError, match="cannot train on a CPU"):
        check_attention(model, torch.device("cpu"))
    check_attention(model, torch.device("cuda"))
    model.config.attention_dropout = 0.1
    with pytest.raises(ConfigError, match="attention_dropout of LlamaForCausalLM is 0"):
        check_attention(model, torch.device("cuda"))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_asked_for_is_the_one_used(attention: Any) -> None:
    for objective in (Lm(), Mlm(), CLASSES):
        model = tiny(objective, ModelConfig(hidden_size=16, num_layers=1, num_heads=2, attention=attention))
        assert model.config._attn_implementation == attention


def _inputs(loss: Loss) -> Any:
    return loss.inputs  # all three have it
