"""Small loops of several kinds over one stream, to be stopped, resumed and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from streamfeed import Source, StreamConfig, StreamLoader
from streamfeed.train.attention import choose_inputs
from streamfeed.train.losses import CausalLoss
from tests.streams import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

SEQ_LEN = 32
LR = 0.01


def model() -> PreTrainedModel:
    """A Llama of a few thousand parameters, the same each time."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=1024,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=SEQ_LEN,
            use_cache=False,
        )
    )


def config(corpus: str, tokenizer: str, **changes: Any) -> StreamConfig:
    """A packed stream of several windows."""
    source = Source(corpus, text="text")
    return StreamConfig([source], tokenizer=tokenizer, seq_len=SEQ_LEN, shuffle_buffer=24, lanes=4, **changes)


def loader(corpus: str, tokenizer: str, *, workers: int = 0, batch: int = 2, **changes: Any) -> StreamLoader:
    """Batches of that stream."""
    return StreamLoader(config(corpus, tokenizer, **changes), batch, num_workers=workers, cache_dir=CACHE)


def loss_of(net: PreTrainedModel) -> CausalLoss:
    """The loss that keeps documents apart."""
    return CausalLoss(choose_inputs(net, causal=True, packed=True))


def weights(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the weights by name."""
    return {name: weight.detach().clone() for name, weight in net.state_dict().items()}


def accelerate_loop(
    stream: StreamLoader, folder: Path, *, steps: int, accumulate: int = 1, save_at: int = 0, resume: bool = False
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Accelerate: the loader is registered for checkpoints, not prepared."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    net, optimizer = accelerator.prepare(*_net_and_optimizer())
    assert accelerator.prepare(stream) is stream, "a loader of its own kind is left alone"
    accelerator.register_for_checkpointing(stream)
    if resume:
        accelerator.load_state(str(folder / "saved"))
    losses: list[float] = []
    for batch in stream:
        with accelerator.accumulate(net):
            loss = _mean_loss(net, accelerator.unwrap_model(net), batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if save_at and len(losses) == save_at * accumulate:
            accelerator.save_state(str(folder / "saved"))
        if len(losses) == steps * accumulate:
            break
    return losses, weights(accelerator.unwrap_model(net))


def bare_loop(
    stream: StreamLoader, folder: Path, *, steps: int, accumulate: int = 1, save_at: int = 0, resume: bool = False
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Plain PyTorch, which takes all batches of a step ahead; DistributedDataParallel where a group is up."""
    bare, optimizer = _net_and_optimizer()
    net: torch.nn.Module = bare
    if torch.distributed.is_initialized():
        net = torch.nn.parallel.DistributedDataParallel(bare)
    if resume:
        saved = torch.load(folder / "saved.pt", weights_only=True)
        bare.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        stream.load_state_dict(saved["stream"])
    losses: list[float] = []
    batches = iter(stream)
    for step in range(steps):
        micro = [next(batches) for _ in range(accumulate)]
        for batch in micro:
            loss = _mean_loss(net, bare, batch) / accumulate
            torch.autograd.backward(loss)
            losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
        if step + 1 == save_at:
            next(batches)  # one more than was trained on: it comes again
            state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict()}
            state["stream"] = stream.state_dict(batches=save_at * accumulate)
            if stream.rank == 0:
                torch.save(state, folder / "saved.pt")
            if step + 1 < steps:
                raise AssertionError("the loop stops where it saves")
    return losses, weights(bare)


def _net_and_optimizer() -> tuple[Any, torch.optim.Optimizer]:
    net = model()
    return net, torch.optim.AdamW(net.parameters(), lr=LR)


def _mean_loss(net: torch.nn.Module, bare: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    loss = loss_of(bare)
    summed, _ = loss.summed(net, batch)
    return summed / max(loss.count(batch), 1)


def trainer_loop(
    stream: StreamLoader, folder: Path, *, steps: int, accumulate: int = 1, save_at: int = 0, resume: bool = False
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The Hugging Face Trainer; a run that saves stops there, as if it had been killed behind the checkpoint."""
    from transformers import TrainerCallback, TrainingArguments

    from streamfeed.integrations.huggingface import StreamTrainer

    class StopBehindTheSave(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= save_at > 0

    finite = stream.config.epochs is not None
    arguments = TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=stream.batch_size,
        gradient_accumulation_steps=accumulate,
        max_steps=-1 if finite else steps,
        num_train_epochs=steps if finite else 1,
        learning_rate=LR,
        save_strategy="steps",
        save_steps=save_at or 10**6,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = StreamTrainer(model(), arguments, stream, callbacks=[StopBehindTheSave()])
    trainer.train(resume_from_checkpoint=resume)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return losses, weights(trainer.model)


LOOPS: dict[str, Callable[..., tuple[list[float], dict[str, torch.Tensor]]]] = {
    "accelerate": accelerate_loop,
    "bare": bare_loop,
    "trainer": trainer_loop,
}


def on_rank(
    rank: int, size: int, *, loop: str, corpus: str, tokenizer: str, folder: str, options: dict[str, Any]
) -> Any:
    """Run a loop as a rank of the pool; return its losses and whether weights are equal on all ranks."""
    stream = loader(corpus, tokenizer, workers=options.pop("workers"))
    with stream:
        losses, found = LOOPS[loop](stream, Path(folder), **options)
    total = sum(float(weight.double().sum()) for weight in found.values())
    gathered: list[Any] = [None] * size
    torch.distributed.all_gather_object(gathered, total)
    assert len(set(gathered)) == 1, "ranks have drifted apart"
    if rank == 0:
        torch.save(found, Path(folder) / f"{loop}-weights.pt")
    return json.loads(json.dumps(losses))
