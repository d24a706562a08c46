"""Lightning on a stream, resumed at the very next row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

from streamfeed.errors import ConfigError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.memory import Batch

__all__ = ["StreamCallback"]


class StreamCallback(Callback):  # type: ignore[misc]  # lightning has no types that mypy follows here
    """Keeps the state of ``loader`` in Lightning's checkpoints: as of the batches trained on.

    Lightning takes a batch ahead of training, and would save the state of that one; so it is given
    :meth:`batches`, which has none of its own, in place of the loader::

        stream = StreamCallback(loader)
        trainer = Trainer(max_steps=1000, callbacks=[stream, ModelCheckpoint(every_n_train_steps=100)])
        trainer.fit(module, stream.batches(), ckpt_path="last")

    With several ranks give a function that makes the loader, which is called once Lightning has joined them. A
    checkpoint that is asked for in the middle of an accumulation has lost the gradient of its first batches, as always
    in Lightning; those of ``ModelCheckpoint`` come behind whole steps. Save a run over passes of a finite stream, with
    accumulation, at the ends of epochs: behind a checkpoint that was made by steps at the very last batch of a pass,
    Lightning goes on counting the batches of that epoch, and its next step is a shorter one. Lightning saves no states
    of random generators: a model with dropout goes on with other random numbers.

    Raises :class:`~streamfeed.errors.ConfigError` when training starts on a loader of other ranks, or on the loader
    itself.
    """

    def __init__(self, loader: StreamLoader | Callable[[], StreamLoader]) -> None:
        self._made: StreamLoader | None = None if callable(loader) else loader
        self._make = loader if callable(loader) else None
        self._trainer: Any = None
        self._begun = 0
        """batches that Lightning had trained on, by its own count, when the loader stood at its first"""
        self._batches = _Batches(self)

    @property
    def loader(self) -> StreamLoader:
        """The loader. Raises :class:`~streamfeed.errors.ConfigError` before it is made."""
        if self._made is None:
            raise ConfigError("the loader is made when Lightning sets up: it cannot be asked for before trainer.fit()")
        return self._made

    def batches(self) -> Iterable[Batch]:
        """Return what Lightning takes for a loader."""
        return self._batches

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - Lightning's signature
        """Make the loader, if that is ours to do, and check that its ranks are Lightning's."""
        self._trainer = trainer
        if self._made is None and self._make is not None:
            self._made = self._make()
        loader = self.loader
        if loader.world_size != trainer.world_size or not loader.joined:
            raise ConfigError(
                f"Lightning runs on {trainer.world_size} rank(s), the loader on {loader.world_size}, or they are not "
                "joined; give StreamCallback a function that makes the loader"
            )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Check that Lightning learns from what it was given."""
        if trainer.train_dataloader is not self._batches:
            raise ConfigError(
                "give trainer.fit() the callback's batches(), not the loader itself, whose state it would save"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as of the batches trained on; a collective, as saving is in Lightning."""
        return {"stream": self._state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Put the stream there."""
        if "stream" not in state_dict:
            raise StateError("the checkpoint has no state of a stream")
        self.loader.load_state_dict(state_dict["stream"])
        self._begun = -1  # Lightning puts its own count back only behind this

    def _used(self) -> int:
        """Return the number of batches trained on since the loader was made or loaded, by Lightning's own count."""
        return self._counted() - self._begun if self._begun >= 0 else 0

    def _counted(self) -> int:
        return int(self._trainer.fit_loop.epoch_loop.batch_progress.total.processed)

    def _state(self) -> dict[str, Any]:
        # All that was handed out is used: then it may also be known that the pass has ended.
        used = self._used()
        return self.loader.state_dict(None if used == self.loader.batches else used)

    def begin(self) -> Iterator[Batch]:
        """Go on behind the batches trained on: what was taken ahead, and let go of, comes again."""
        if self._begun < 0 or not self.loader.batches:
            self._begun = self._counted()
        elif self._used() != self.loader.batches:
            self.loader.load_state_dict(self._state())
            self._begun = self._counted()
        return iter(self.loader)


class _Batches:
    def __init__(self, stream: StreamCallback) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Batch]:
        return self._stream.begin()
