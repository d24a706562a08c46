"""Batches of a loader on a device, copied there while the ones in front of them are computed on."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from streamfeed.device.engine import CudaEngine
from streamfeed.device.ring import PinnedRing
from streamfeed.device.shown import OfLoader
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from streamfeed.device.engine import Copy, Engine
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.memory import Batch
    from streamfeed.loader.report import Report

__all__ = ["DevicePrefetcher"]


@dataclass(slots=True)
class _Taken:
    """A batch that the loader has handed out and we have not: on the host until its copy has begun."""

    host: Batch
    measured: Any
    copy: Copy | None = None


class DevicePrefetcher(OfLoader):
    """The batches of ``loader`` on ``device`` (CUDA where there is one). Interface and meaning are the loader's.

    On CUDA rows are put into pinned memory straight from the workers' messages, and copied from there on a stream of
    their own, up to ``depth`` batches ahead of the one handed out. Nothing is waited for but the batch that is asked
    for: those behind it are taken as far as their rows have arrived. Every batch owns its memory on the device, however
    many are kept. It is for the stream that is current when it is handed out; to use it on another one, let that one
    wait and call ``record_stream``. On the CPU it is the loader's own batches; other devices get blocking copies.

    :meth:`state_dict` is of the batches handed out, never of those taken ahead; errors are raised in the place of their
    batch, behind those in front of it. The loader is the prefetcher's from then on: do not iterate it beside.

    ``measure`` is asked about each batch while it is on the host, as in how many labels it has, and must not keep it;
    :attr:`measured` is the answer for the batch last handed out. So nobody needs to wait for the device to know.
    ``engine`` copies in place of CUDA.

    Raises :class:`~streamfeed.errors.ConfigError` for a depth below 1, and one above the loader's ``kept_states``.
    """

    def __init__(
        self,
        loader: StreamLoader,
        device: str | torch.device | None = None,
        *,
        depth: int = 2,
        measure: Callable[[Batch], Any] | None = None,
        engine: Engine | None = None,
    ) -> None:
        if depth < 1:
            raise ConfigError(f"depth must be at least 1, got {depth}")
        super().__init__(loader)
        self.device = _settled(device)
        self.measured: Any = None
        self._measure = measure
        self._depth = depth
        if engine is None and self.device.type == "cuda":
            engine = CudaEngine(self.device)
        self._ring = None if engine is None else PinnedRing(engine, depth + 1)
        if self._ring is not None:
            if depth > loader.kept_states:
                raise ConfigError(
                    f"depth {depth} is more than the {loader.kept_states} last states that the loader keeps; give it "
                    f"kept_states={depth} or more"
                )
            self._ring.lend_to(loader)
        self._begin()

    def _begin(self) -> None:
        """Stand where the loader stands."""
        self._batches: Iterator[Batch] | None = None
        self._taken: deque[_Taken] = deque()
        self._behind: Exception | None = None  # what is raised once those taken are handed out
        self._passed = False  # the pass ends behind those taken
        self._first = self.loader.batches
        self._handed = 0

    # Iteration

    def __iter__(self) -> Iterator[Batch]:
        """Continue after the last batch handed out; begin the next pass when the last one has ended."""
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> Batch | None:
        if not self._taken and not self._arrives():
            return None
        # Looking ahead comes first, while the device is busy: were it interrupted, this batch would not be lost.
        self._copy(self._taken[0])
        self._look_ahead()
        batch = self._on_device(self._taken[0])
        self.measured = self._taken.popleft().measured
        self._handed += 1
        return batch

    def _arrives(self) -> bool:
        """Wait for the next batch; False at the end of the pass. Raises what looking ahead has met here."""
        failure, self._behind = self._behind, None
        if failure is not None:
            raise failure
        passed, self._passed = self._passed, False
        if passed:
            return False
        if self._ring is not None:
            with self.loader.stages.copy.blocked:
                self._ring.wait()
        return self._take()

    def _look_ahead(self) -> None:
        """Take what can be taken without waiting, and begin to copy it."""
        if self._ring is None:
            return
        while self._batches is not None and len(self._taken) <= self._depth and self._ring.free():
            try:
                if not self.loader.ready():
                    return
                self._passed = not self._take()
            except Exception as error:  # noqa: BLE001 - raised in its place
                self._behind, self._batches = error, None
                return
            try:
                self._copy(self._taken[-1])
            except Exception:  # noqa: BLE001 - tried again, and raised, when its turn comes
                return

    def _take(self) -> bool:
        """Take a batch from the loader, which may wait; False at the end of the pass."""
        batches, self._batches = self._batches or iter(self.loader), None  # one that raises is of no more use
        batch = next(batches, None)
        if batch is None:
            return False
        self._taken.append(_Taken(batch, None if self._measure is None else self._measure(batch)))
        self._batches = batches
        return True

    def _copy(self, taken: _Taken) -> None:
        """Begin to copy, if that has not begun; the ring then holds what is copied, as long as it must."""
        if self._ring is not None and taken.copy is None:
            with self._copying():
                taken.copy = self._ring.begin(taken.host)
            self.loader.stages.copy.count(1, sum(column.nbytes for column in taken.host.values()))
            taken.host = {}

    @contextmanager
    def _copying(self) -> Iterator[None]:
        """Count the time inside as copying, and as waiting for the next batch."""
        stages = self.loader.stages
        begin = stages.copy.busy.now()
        with stages.copy.busy:
            yield
        stages.wait.busy.add(begin, stages.copy.busy.now() - begin)

    def _on_device(self, taken: _Taken) -> Batch:
        if self._ring is not None:
            assert taken.copy is not None
            return self._ring.hand_out(taken.copy)
        if self.device.type == "cpu":
            return taken.host
        with self._copying():
            return {name: column.to(self.device) for name, column in taken.host.items()}

    def ready(self) -> bool:
        """Say whether the next batch can be handed out without waiting for workers or other ranks."""
        return bool(self._taken) or self._behind is not None or self.loader.ready()

    # State

    @property
    def batches(self) -> int:
        """The number of batches handed out since the loader was made, loaded or reset."""
        return self._first + self._handed

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state as of the last batch handed out, or the ``batches``-th; a collective, as the loader's.

        Of the states that the loader keeps, those of batches taken ahead are some.
        """
        if batches is None and (self._taken or self._passed):
            batches = self.batches
        return self.loader.state_dict(batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where ``state`` was taken; batches taken ahead are dropped. Raises what the loader raises."""
        self.loader.load_state_dict(state)
        self._begin()

    def reset(self) -> None:
        """Start over: the next batch is the first of the stream."""
        self.loader.reset()
        self._begin()

    # Ending

    def report(self) -> Report:
        """Return what became of the data so far, of this rank; batches taken ahead are in it."""
        return self.loader.report()

    def leave(self) -> None:
        """Tell the other ranks that this one takes no more batches; see :meth:`StreamLoader.leave`."""
        self.loader.leave()

    def close(self) -> None:
        """Stop the workers. What was taken ahead is still handed out; the batch behind it starts them again."""
        try:
            if self._ring is not None:
                self._ring.settle()
        finally:
            self.loader.close()

    def __enter__(self) -> Self:
        """Return the prefetcher itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the workers."""
        self.close()


def _settled(device: str | torch.device | None) -> torch.device:
    """Return ``device`` with the number of a GPU: the current one may be another by the time it is used."""
    return torch.empty(0, device=device or ("cuda" if torch.cuda.is_available() else "cpu")).device
