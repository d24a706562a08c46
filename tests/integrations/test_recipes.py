"""Each recipe trains, stops, resumes in a fresh loop, and ends as one that never stopped: in losses and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from transformers import TrainingArguments

from streamfeed.errors import ConfigError, StateError
from streamfeed.integrations.huggingface import STATE_FILE, StreamTrainer
from tests.integrations.recipes import LOOPS, loader, model
from tests.streams import corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.distributed.pool import RankPool

Weights = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    _forget()
    yield
    _forget()


def _forget() -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()


@pytest.fixture
def shards(tmp_path: Path) -> str:
    corpus(tmp_path / "corpus", "jsonl", [40, 25, 33], words=40)
    return str(tmp_path / "corpus")


def equal(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(weight, other[name]) for name, weight in one.items())


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
@pytest.mark.parametrize("loop", LOOPS)
def test_stopped_and_resumed_it_equals_the_uninterrupted_run_to_the_bit(
    loop: str, workers: int, accumulate: int, shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    def run(name: str = "cut", **options: Any) -> tuple[list[float], Weights]:
        _forget()
        (tmp_path / name).mkdir(exist_ok=True)
        with loader(shards, str(tokenizer_folder), workers=workers) as stream:
            return LOOPS[loop](stream, tmp_path / name, accumulate=accumulate, **options)

    straight, expected = run("straight", steps=5)
    if loop == "trainer":
        before, _ = run(steps=5, save_at=2)  # its schedule depends on the whole length
        rest, found = run(steps=5, resume=True)
        assert rest == straight, "the Trainer's history begins at the first step"
    else:
        before, _ = run(steps=2, save_at=2)
        rest, found = run(steps=3, resume=True)
        assert before + rest == straight
    assert before == straight[: len(before)]
    assert equal(found, expected)


@pytest.mark.parametrize("passes", [1, 2])
def test_the_trainer_counts_a_finite_stream_and_resumes_in_the_middle_of_a_pass(
    passes: int, shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    """Batches do not divide into steps: the last step of an epoch is of fewer."""

    def run(name: str = "cut", **options: Any) -> tuple[list[float], Weights]:
        _forget()
        with loader(shards, str(tokenizer_folder), batch=8, epochs=1) as stream:
            return LOOPS["trainer"](stream, tmp_path / name, steps=passes, accumulate=4, **options)

    straight, expected = run("straight")
    run(save_at=len(straight) - 2)
    rest, found = run(resume=True)
    assert rest == straight
    assert equal(found, expected)


def test_a_trainer_checkpoint_without_the_stream_is_refused(
    shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    with loader(shards, str(tokenizer_folder)) as stream:
        LOOPS["trainer"](stream, tmp_path, steps=2, save_at=1)
    (tmp_path / "trainer/checkpoint-1" / STATE_FILE).unlink()
    with (
        loader(shards, str(tokenizer_folder)) as stream,
        pytest.raises(StateError, match="not written by StreamTrainer"),
    ):
        LOOPS["trainer"](stream, tmp_path, steps=2, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_device_train_batch_size": 3}, "per_device_train_batch_size is 3 and the loader's batch_size 2"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"max_steps": -1}, "the stream repeats"),
        ({"gradient_accumulation_steps": 300}, "kept_states=316"),
        ({"dataloader_num_workers": 2}, "dataloader_num_workers has no effect"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches"),
        ({"train_sampling_strategy": "group_by_length"}, "group_by_length=True"),
    ],
    ids=str,
)
def test_arguments_of_the_trainer_that_would_break_exactness_are_refused(
    changes: dict[str, Any], message: str, shards: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    arguments = {"per_device_train_batch_size": 2, "max_steps": 3, "use_cpu": True, "output_dir": str(tmp_path)}
    with loader(shards, str(tokenizer_folder)) as stream, pytest.raises(ConfigError, match=message):
        StreamTrainer(model(), TrainingArguments(**(arguments | changes)), stream)


@pytest.mark.processes
@pytest.mark.timeout(240)
@pytest.mark.parametrize("loop", LOOPS)
def test_on_two_ranks_too(loop: str, shards: str, tokenizer_folder: Path, tmp_path: Path, rank_pool: RankPool) -> None:
    common = {"loop": loop, "corpus": shards, "tokenizer": str(tokenizer_folder)}

    def run(job: str, name: str, **options: Any) -> tuple[Any, Weights]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        arguments = common | {"folder": str(folder), "options": {"workers": 0, "accumulate": 2, **options}}
        losses = rank_pool.run(tmp_path / job, "tests.integrations.recipes:on_rank", 2, arguments)
        return losses, torch.load(folder / f"{loop}-weights.pt", weights_only=True)

    straight, expected = run("job-1", "straight", steps=4)
    steps = 4 if loop == "trainer" else 2
    run("job-2", "cut", steps=steps, save_at=2)
    rest, found = run("job-3", "cut", steps=steps, resume=True)
    assert equal(found, expected)
    assert rest[0][-2:] == straight[0][-2:]


@pytest.mark.parametrize("batch", [2, 4])
def test_the_trainer_takes_the_mean_over_a_step_also_of_a_model_whose_loss_is_a_mean(
    batch: int, tmp_path: Path
) -> None:
    """However eight samples are divided into micro-batches, the first step is the same."""
    from transformers import BertConfig, BertForSequenceClassification

    from streamfeed import Classification, Source, StreamConfig, StreamLoader
    from tests.corpora import write_records
    from tests.oracles.test_objectives import records
    from tests.streams import CACHE
    from tests.tokenizers_for_tests import build_bert

    write_records("jsonl", tmp_path / "pairs.jsonl", records(32))
    config = StreamConfig(
        [Source(str(tmp_path / "pairs.jsonl"))],
        tokenizer=str(build_bert(tmp_path / "bert")),
        seq_len=64,
        packing="none",
        shuffle_buffer=0,
        objective=Classification(names=("no", "yes", "maybe")),
    )

    def step(size: int) -> Weights:
        _forget()
        torch.manual_seed(0)
        net = BertForSequenceClassification(
            BertConfig(
                vocab_size=2048, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip
        arguments = TrainingArguments(
            output_dir=str(tmp_path / f"{size}"), per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size, max_steps=1, learning_rate=0.1, optim="sgd", max_grad_norm=0.0,
            lr_scheduler_type="constant", report_to=[],
            save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        with StreamLoader(config, size, cache_dir=CACHE) as stream:
            StreamTrainer(net, arguments, stream).train()
        return dict(net.state_dict())

    whole, divided = step(8), step(batch)
    for name, weight in whole.items():
        torch.testing.assert_close(divided[name], weight, rtol=1e-4, atol=1e-6)
