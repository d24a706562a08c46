"""The Hugging Face ``Trainer`` on a stream, resumed at the very next row."""

from __future__ import annotations

import json
import logging
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from streamfeed.errors import ConfigError, StateError
from streamfeed.train.atomic import write_file
from streamfeed.train.losses import make_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel, TrainingArguments

    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.memory import Batch

__all__ = ["STATE_FILE", "StreamTrainer"]

STATE_FILE = "streamfeed_state.json"
"""The stream's state, in each of the Trainer's checkpoint folders."""

_NEEDED = ("_run_epoch", "_save_checkpoint", "loss_is_scaled_for_ga")
"""What is the Trainer's own and is overridden: without it runs would go wrong with no word about it."""

_log = logging.getLogger(__name__)


class StreamTrainer(Trainer):  # type: ignore[misc]  # transformers has no types that mypy follows
    """A ``Trainer`` that learns from ``loader``; everything else is the Trainer's own.

    What its defaults would break, and what is done about it. It shards and dispatches what it takes for a plain
    dataset: here every rank takes its own rows from the loader. It looks ahead a whole accumulation: the state in a
    checkpoint is that of the batches trained on. It replays an epoch's batches to find its place again: the stream is
    put there instead. It lets documents of a packed row see each other, with its cache or an attention mask: the model
    is asked which call keeps them apart. It takes the mean of each micro-batch where a model does: here the loss is
    summed, and divided by the labels of the whole step on all ranks, at least 1.

    A stream that repeats needs ``args.max_steps``. One that is finite is counted before training, and an epoch of the
    Trainer is then as many batches as its first pass has.

    Raises :class:`~streamfeed.errors.ConfigError` for arguments that do not fit the loader.
    """

    def __init__(self, model: PreTrainedModel, args: TrainingArguments, loader: StreamLoader, **options: Any) -> None:
        _check(args, loader)
        args.ignore_data_skip = True  # or it would fetch and drop what the state has behind it
        super().__init__(model=model, args=args, **options)
        self._loader = loader
        whole = getattr(self.model, "get_base_model", lambda: self.model)()  # of an adapter's model, what it adapts
        self._loss = make_loss(loader.config.objective, whole, packed=loader.config.packing != "none")
        self._own_loss = self.compute_loss_func is None and self.label_smoother is None
        if self._own_loss:
            self.loss_is_scaled_for_ga = True
        self._first = loader.batches
        self._used = self._trained = 0
        self._resumed = False
        self.add_callback(_Steps(self))

    def get_train_dataloader(self) -> _Passes:
        """Return the loader's batches, pass after pass."""
        length = None
        if self._loader.config.epochs is not None:
            state = self._loader.state_dict()
            self._loader.reset()
            length = sum(1 for _ in self._loader)
            self._loader.load_state_dict(state)
            self._first, self._used, self._trained = 0, 0, 0
            _log.info("a pass over the stream has %d batches on each rank", length)
        return _Passes(self._loader, length)

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """Train, from the state in ``resume_from_checkpoint`` if that is a checkpoint, or True for the last one.

        Raises :class:`~streamfeed.errors.StateError` where a checkpoint has no state of the stream.
        """
        checkpoint = resume_from_checkpoint or None
        if checkpoint is True:
            checkpoint = get_last_checkpoint(self.args.output_dir)
            if checkpoint is None:
                raise StateError(f"there is no checkpoint in {self.args.output_dir} to resume from")
        self._resumed = checkpoint is not None
        if checkpoint is not None:
            self._loader.load_state_dict(_read_state(Path(str(checkpoint), STATE_FILE)))
        self._first, self._used, self._trained = self._loader.batches, 0, 0
        return super().train(resume_from_checkpoint=checkpoint, **options)

    def get_batch_samples(self, epoch_iterator: Iterator[Batch], num_batches: int, device: Any) -> Any:
        """Return the batches of a step, and how many labels those of all ranks have, at least 1."""
        batches = list(islice(epoch_iterator, num_batches))
        labels = torch.tensor(sum(self._loss.count(batch) for batch in batches), device=device)
        return batches, self.accelerator.reduce(labels, "sum").clamp(min=1)

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Train on one micro-batch."""
        self._used += 1
        return super().training_step(*arguments, **options)  # type: ignore[no-any-return]

    def stepped(self) -> None:
        """Note that what was trained on is in the weights."""
        self._trained = self._used

    def compute_loss(
        self, model: Any, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Any = None, **options: Any
    ) -> Any:
        """Return a micro-batch's part of the mean loss of its step; of evaluation, what the Trainer returns."""
        if return_outputs or num_items_in_batch is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch, **options)
        if not self._own_loss:
            given = {**self._loss.inputs(inputs), "labels": inputs["labels"]}
            return super().compute_loss(model, given, return_outputs, num_items_in_batch, **options)
        summed, _ = self._loss.summed(model, inputs)
        return summed * (self.accelerator.num_processes / num_items_in_batch)  # DDP averages over the ranks

    def _run_epoch(self, **options: Any) -> None:
        """Take only the rest of an epoch that a resume begins in: its last step may be of fewer batches."""
        finite = self._loader.config.epochs is not None
        if finite and self._resumed and options["epoch"] == options["epochs_trained"]:
            done = self.state.global_step % options["num_update_steps_per_epoch"]
            options["num_update_steps_per_epoch"] -= done
            options["steps_in_epoch"] -= done * self.args.gradient_accumulation_steps
        super()._run_epoch(**options)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the stream's state, a collective, and then the Trainer's files."""
        state = self._loader.state_dict(self._first + self._trained)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / STATE_FILE, json.dumps(state))
        super()._save_checkpoint(model, trial)


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Tells the trainer of every optimizer step: a save in the middle of one is as of the step before."""

    def __init__(self, trainer: StreamTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._trainer.stepped()


class _Passes:
    """Batches of pass after pass; ``len()`` is that of the first one, where the stream is finite."""

    def __init__(self, loader: StreamLoader, length: int | None) -> None:
        self._loader = loader
        self._length = length

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield from self._loader

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("a stream that repeats has no length")
        return self._length


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path} cannot be read ({error}): the checkpoint was not written by StreamTrainer, or not finished"
        ) from error
    return state


def _check(args: TrainingArguments, loader: StreamLoader) -> None:
    for wrong, said in _doubts(args, loader):
        if wrong:
            raise ConfigError(said)


def _doubts(args: TrainingArguments, loader: StreamLoader) -> list[tuple[bool, str]]:
    """Return what would not be exact, or without effect, and whether it is so."""
    accelerator, several = args.accelerator_config, args.world_size > 1
    steps = args.gradient_accumulation_steps
    return [
        (
            not all(hasattr(Trainer, name) for name in _NEEDED),
            "this transformers has another Trainer than StreamTrainer is made for; take 5.24",
        ),
        (
            args.per_device_train_batch_size != loader.batch_size,
            (
                f"per_device_train_batch_size is {args.per_device_train_batch_size} and the loader's batch_size "
                f"{loader.batch_size}; the loader makes the batches: give both the same"
            ),
        ),
        (
            bool(args.auto_find_batch_size),
            "auto_find_batch_size would change the batches of a loader that is made; switch it off",
        ),
        (
            args.n_gpu > 1,
            f"one process drives {args.n_gpu} GPUs, which would split batches; start it with torchrun",
        ),
        (
            args.world_size != loader.world_size or not loader.joined,
            (
                f"the Trainer runs on {args.world_size} rank(s), the loader on {loader.world_size}, or they are not "
                "joined; make TrainingArguments first: they join the ranks"
            ),
        ),
        (
            several and not args.average_tokens_across_devices,
            "average_tokens_across_devices must be on: the loss is divided by the labels of all ranks",
        ),
        (
            bool(accelerator.dispatch_batches or accelerator.split_batches),
            "dispatch_batches and split_batches: every rank reads its own rows; switch them off",
        ),
        (
            args.dataloader_num_workers > 0,
            "dataloader_num_workers has no effect: workers are those of StreamLoader(num_workers=...)",
        ),
        (
            str(getattr(args, "train_sampling_strategy", "")).endswith("group_by_length"),
            "grouping by length is the stream's: StreamConfig(group_by_length=True); switch it off here",
        ),
        (
            args.max_steps <= 0 and loader.config.epochs is None,
            "the stream repeats: give TrainingArguments(max_steps=...), or StreamConfig(epochs=1)",
        ),
        (
            steps >= loader.kept_states,
            (
                f"gradient_accumulation_steps {steps} batches are taken ahead of training; make the loader with "
                f"kept_states={steps + 16}"
            ),
        ),
    ]
