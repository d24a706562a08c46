"""Lightning on a stream, resumed at the very next row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

from streamfeed.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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

    With several ranks, make the loader once Lightning has joined them, in ``train_dataloader`` of the module. A
    checkpoint that is asked for in the middle of an accumulation has lost the gradient of its first batches, as always
    in Lightning; those of ``ModelCheckpoint`` come behind whole steps. Save a run over passes of a finite stream, with
    accumulation, at the ends of epochs: behind a checkpoint that was made by steps at the very last batch of a pass,
    Lightning goes on counting the batches of that epoch, and its next step is a shorter one.
    """

    def __init__(self, loader: StreamLoader) -> None:
        self._loader = loader
        self._used = loader.batches

    def batches(self) -> Iterable[Batch]:
        """Return what Lightning takes for a loader."""
        return _Batches(self)

    def on_train_batch_end(self, *_: Any) -> None:
        """Count a batch that was trained on."""
        self._used += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state as of the batches trained on; a collective, as saving is in Lightning."""
        return {"stream": self._state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Put the stream there."""
        if "stream" not in state_dict:
            raise StateError("the checkpoint has no state of a stream")
        self._put(state_dict["stream"])

    def _state(self) -> dict[str, Any]:
        # All that was handed out is used: then it may also be known that the pass has ended.
        return self._loader.state_dict(None if self._used == self._loader.batches else self._used)

    def _put(self, state: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state)
        self._used = self._loader.batches

    def _begin(self) -> Iterator[Batch]:
        """Go on behind the batches trained on: what was taken ahead, and let go of, comes again."""
        if self._used != self._loader.batches:
            self._put(self._state())
        return iter(self._loader)


class _Batches:
    def __init__(self, stream: StreamCallback) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Batch]:
        return self._stream._begin()  # noqa: SLF001 - the two are one
