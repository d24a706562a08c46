"""What copies batches to an accelerator while it computes: all of CUDA that prefetching needs, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from streamfeed.loader.memory import Batch

__all__ = ["Arrival", "Copy", "CudaEngine", "Engine"]


class Arrival(Protocol):
    """Tells when a copy has arrived; a ``torch.cuda.Event`` is one."""

    def query(self) -> bool:
        """Say whether it has, without waiting."""

    def synchronize(self) -> None:
        """Wait for it, on the host."""


class Copy(NamedTuple):
    """A batch on its way: its columns on the device, and what tells that they are there."""

    batch: Batch
    arrival: Arrival


class Engine(Protocol):
    """Copies from pinned memory of the host, one batch after another, beside what is computed."""

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return pinned memory, contents undefined."""

    def is_pinned(self, column: Tensor) -> bool:
        """Say whether ``column`` lies in pinned memory."""

    def copy(self, batch: Batch) -> Copy:
        """Begin to copy pinned columns, which are read until the copy has arrived; the host does not wait."""

    def hand_over(self, copy: Copy) -> None:
        """Make the batch usable on the stream that is current; that stream waits for the copy, the host does not."""

    def settle(self) -> None:
        """Wait for all copies that were begun."""


class CudaEngine:
    """Copies on a CUDA stream of its own. An event behind each copy is its arrival.

    The hazards, and what is done about each:

    1. *The host fills pinned memory again while it is still being copied.* Who begins a copy keeps its columns until
       the event has passed (``ring.py``). PyTorch's own guard covers the memory of its allocator alone, not ours.
    2. *A kernel reads before the copy has arrived.* The stream that is current when the batch is handed out waits for
       the event, on the device.
    3. *The device memory of a batch that was dropped is given to the next copy while kernels that read it are still
       queued.* It was allocated on the copying stream, whose order knows nothing of them. ``record_stream`` tells the
       allocator who uses it: it is free once these kernels have run. A batch may thus be kept as long as one likes.
    4. *The batch is used on yet another stream.* That is the user's: wait for the stream on which the batch was handed
       out, and call ``record_stream``.
    5. *All of it is dropped while a copy reads.* The ring waits for its copies before its memory goes.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return pinned memory."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def is_pinned(self, column: Tensor) -> bool:
        """Ask CUDA about the address."""
        return column.is_pinned()

    def copy(self, batch: Batch) -> Copy:
        """Queue the copies, and an event behind them."""
        with torch.cuda.stream(self._stream):
            copied = {name: column.to(self._device, non_blocking=True) for name, column in batch.items()}
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return Copy(copied, event)

    def hand_over(self, copy: Copy) -> None:
        """Let the current stream wait, and tell the allocator that it uses the memory."""
        assert isinstance(copy.arrival, torch.cuda.Event)
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copy.arrival)
        for column in copy.batch.values():
            column.record_stream(current)

    def settle(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()
