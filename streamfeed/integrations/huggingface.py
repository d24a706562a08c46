"""The Hugging Face ``Trainer`` on a stream, resumed at the very next row."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer
from transformers.trainer_utils import get_last_checkpoint

from streamfeed.errors import ConfigError, StateError
from streamfeed.objectives import Classification, Mlm
from streamfeed.train.atomic import write_file
from streamfeed.train.attention import choose_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel, TrainingArguments

    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.memory import Batch

__all__ = ["STATE_FILE", "StreamTrainer"]

STATE_FILE = "streamfeed_state.json"
"""The stream's state, in each of the Trainer's checkpoint folders."""

_log = logging.getLogger(__name__)


class StreamTrainer(Trainer):  # type: ignore[misc]  # transformers has no types that mypy follows
    """A ``Trainer`` that learns from ``loader``; everything else is the Trainer's own.

    What its defaults would break, and what is done about it. It shards and dispatches what it takes for a plain
    dataset: here every rank takes its own rows from the loader. It looks ahead a whole accumulation: the state in a
    checkpoint is that of the batches trained on. It replays an epoch's batches to find its place again: the stream is
    put there instead. It lets documents of a packed row see each other, with its cache or an attention mask: the model
    is asked which call keeps them apart. It divides by no labels where a step has none: by 1 here.

    A stream that repeats needs ``args.max_steps``. One that is finite is counted before training, and an epoch of the
    Trainer is then as many batches as its first pass has.

    Raises :class:`~streamfeed.errors.ConfigError` for arguments that do not fit the loader.
    """

    def __init__(self, model: PreTrainedModel, args: TrainingArguments, loader: StreamLoader, **options: Any) -> None:
        _check(args, loader)
        args.ignore_data_skip = True  # or it would fetch and drop what the state has behind it
        super().__init__(model=model, args=args, **options)
        objective = loader.config.objective
        causal = not isinstance(objective, Classification | Mlm)
        self._loader = loader
        self._inputs = choose_inputs(model, causal=causal, packed=loader.config.packing != "none")
        self._first = loader.batches
        self._used = 0
        self._resumed = False

    def get_train_dataloader(self) -> _Passes:
        """Return the loader's batches, pass after pass."""
        length = None
        if self._loader.config.epochs is not None:
            state = self._loader.state_dict()
            self._loader.reset()
            length = sum(1 for _ in self._loader)
            self._loader.load_state_dict(state)
            self._first, self._used = 0, 0
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
        self._first, self._used = self._loader.batches, 0
        return super().train(resume_from_checkpoint=checkpoint, **options)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """Return the batches of a step, and how many labels those of all ranks have, at least 1."""
        batches, labels = super().get_batch_samples(epoch_iterator, num_batches, device)
        return batches, labels.clamp(min=1) if isinstance(labels, torch.Tensor) else labels

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Train on one micro-batch."""
        self._used += 1
        return super().training_step(*arguments, **options)  # type: ignore[no-any-return]

    def compute_loss(self, model: Any, inputs: Batch, *arguments: Any, **options: Any) -> Any:
        """Return the loss of a batch, whose documents do not see each other."""
        given = {**self._inputs(inputs), "labels": inputs["labels"]}
        return super().compute_loss(model, given, *arguments, **options)

    def _run_epoch(self, **options: Any) -> None:
        """Take only the rest of an epoch that a resume begins in: its last step may be of fewer batches."""
        if self._resumed and options["epoch"] == options["epochs_trained"]:
            done = self.state.global_step % options["num_update_steps_per_epoch"]
            if self._loader.config.epochs is not None:
                options["num_update_steps_per_epoch"] -= done
                options["steps_in_epoch"] -= done * self.args.gradient_accumulation_steps
        super()._run_epoch(**options)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the stream's state, a collective, and then the Trainer's files."""
        state = self._loader.state_dict(self._first + self._used)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / STATE_FILE, json.dumps(state))
        super()._save_checkpoint(model, trial)


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
    if args.per_device_train_batch_size != loader.batch_size:
        raise ConfigError(
            f"per_device_train_batch_size is {args.per_device_train_batch_size} and the loader's batch_size "
            f"{loader.batch_size}; the loader makes the batches: give both the same"
        )
    if args.auto_find_batch_size:
        raise ConfigError("auto_find_batch_size would change the batches of a loader that is made; switch it off")
    if args.n_gpu > 1:
        raise ConfigError(f"one process drives {args.n_gpu} GPUs, which would split batches; start it with torchrun")
    if args.world_size != loader.world_size or not loader.joined:
        raise ConfigError(
            f"the Trainer runs on {args.world_size} rank(s), the loader on {loader.world_size}; make TrainingArguments "
            "first: they join the ranks"
        )
    if args.world_size > 1 and not args.average_tokens_across_devices:
        raise ConfigError("average_tokens_across_devices must be on: the loss is divided by the labels of all ranks")
    if args.max_steps <= 0 and loader.config.epochs is None:
        raise ConfigError(
            "the stream repeats for ever: give TrainingArguments(max_steps=...), or StreamConfig(epochs=1)"
        )
    if args.gradient_accumulation_steps >= loader.kept_states:
        raise ConfigError(
            f"gradient_accumulation_steps {args.gradient_accumulation_steps} batches are taken ahead of training; make "
            f"the loader with kept_states={args.gradient_accumulation_steps + 16}"
        )
