"""One optimizer step: losses, gradients, rates and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import Accelerator

from streamfeed.encode.tokenizer import TokenizerSpec
from streamfeed.errors import ConfigError
from streamfeed.objectives import Lm
from streamfeed.topology import Ranks
from streamfeed.train.config import ModelConfig
from streamfeed.train.job import rows_to_skip
from streamfeed.train.losses import CausalLoss, make_loss
from streamfeed.train.model import build_model, check_fits, parameter_groups
from streamfeed.train.step import backward, micro_batches
from streamfeed.train.stop import Stop
from streamfeed.train.together import Together
from tests.train.fake_stream import VOCABULARY, collate, row

TINY = ModelConfig(hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32)
TOKENIZER = TokenizerSpec("{}", "fake", 0, None, None, VOCABULARY, "fake")
LENGTH = 16


def tiny(config: ModelConfig = TINY) -> Any:
    torch.manual_seed(0)
    return build_model(config, Lm(), TOKENIZER, LENGTH, None)


def loss_of(model: Any) -> CausalLoss:
    loss = make_loss(Lm(), model, packed=True)
    assert isinstance(loss, CausalLoss)
    return loss


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_micro_batches_give_the_gradient_of_the_whole_batch_however_labels_are_spread() -> None:
    rows = [row(g, LENGTH) for g in range(4, 8)]
    rows[0]["labels"][:] = -100  # a micro-batch without a label
    whole = collate(rows)
    model = tiny()
    labels = loss_of(model).count(whole)
    torch.autograd.backward(loss_of(model).summed(model, whole)[0] / labels)
    expected = gradients(model)
    mean = loss_of(model).summed(model, whole)[0].item() / labels

    again = tiny()
    loss = backward(Accelerator(), again, loss_of(again), [collate([one]) for one in rows], labels)
    assert float(loss) == pytest.approx(mean, rel=1e-6)
    for got, want in zip(gradients(again), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-7)


def test_a_step_without_any_label_has_loss_0_and_no_nan() -> None:
    batch = collate([row(1, LENGTH, empty=True)])
    model = tiny()
    assert loss_of(model).count(batch) == 0
    assert float(backward(Accelerator(), model, loss_of(model), [batch], 0)) == 0.0
    assert all(bool((gradient == 0).all()) for gradient in gradients(model))


def test_labels_are_shifted_once_and_counted_as_the_loss_uses_them() -> None:
    batch = collate([row(3, LENGTH)])
    model = tiny()
    logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    chosen = torch.log_softmax(logits, -1)
    used = [(t, int(batch["labels"][0, t + 1])) for t in range(LENGTH - 1) if batch["labels"][0, t + 1] != -100]
    by_hand = -sum(float(chosen[0, t, target]) for t, target in used)
    assert loss_of(model).summed(model, batch)[0].item() == pytest.approx(by_hand, rel=1e-5)
    assert loss_of(model).count(batch) == len(used)


def test_packed_documents_do_not_see_each_other() -> None:
    model = tiny().eval()
    packed = row(9, LENGTH)
    border = int((packed["position_ids"][1:] == 0).nonzero()[0]) + 1
    whole = model(
        input_ids=packed["input_ids"][None], position_ids=packed["position_ids"][None], use_cache=False
    ).logits[0]
    for part in (slice(0, border), slice(border, LENGTH)):
        alone = model(input_ids=packed["input_ids"][part][None], use_cache=False).logits[0]
        torch.testing.assert_close(whole[part], alone, rtol=1e-4, atol=1e-5)


def test_the_eos_embedding_learns_also_where_it_is_the_pad() -> None:
    model = build_model(TINY, Lm(), TokenizerSpec("{}", "fake", 0, None, 0, VOCABULARY, "fake"), LENGTH, None)
    assert model.get_input_embeddings().padding_idx is None


def test_ids_without_an_embedding_and_rows_too_long_are_refused() -> None:
    with pytest.raises(ConfigError, match="ids up to 999, the model embeds 64"):
        check_fits(tiny(), TokenizerSpec("{}", "x", 0, None, None, 1000, "big"), LENGTH)
    with pytest.raises(ConfigError, match="longer than the 2048 positions"):
        check_fits(tiny(), TOKENIZER, 4096)


def test_matrices_decay_and_norms_do_not() -> None:
    model = tiny()
    decayed, plain = parameter_groups(model, 0.1)
    assert all(parameter.ndim >= 2 for parameter in decayed["params"])
    assert all(parameter.ndim < 2 for parameter in plain["params"])
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(("size", "message"), [(12, "8 or 16"), (3, "that does: 8$"), (20, "16 or 24")])
def test_a_global_batch_that_does_not_divide_names_the_nearest_that_do(size: int, message: str) -> None:
    assert micro_batches(24, 4, 2) == 3
    with pytest.raises(ConfigError, match=message):
        micro_batches(size, 4, 2)


def test_skip_rows_is_a_total_so_that_the_same_flag_never_skips_twice() -> None:
    assert rows_to_skip(0, 0, 8) == 0
    assert rows_to_skip(64, 0, 8) == 64
    assert rows_to_skip(64, 64, 8) == 0
    assert rows_to_skip(96, 64, 8) == 32
    assert rows_to_skip(0, 64, 8) == 0
    with pytest.raises(ConfigError, match="has stepped over 64 rows already; to step over 8 more, give 72"):
        rows_to_skip(8, 64, 8)
    with pytest.raises(ConfigError, match="not whole batches of 8 rows; the nearest that is: 64 or 72"):
        rows_to_skip(67, 0, 8)


def test_the_labels_of_a_step_are_those_measured_on_the_host_and_no_batch_is_looked_at() -> None:
    class Measured:
        measured = 0

        def __iter__(self) -> Any:
            for self.measured in (5, 0, 7):
                yield object()

    loader: Any = Measured()
    taken = Together(Ranks(0, 1), Stop()).take(loader, iter(loader), 4)
    assert (len(taken.batches), taken.labels) == (3, 12)
