"""Shared memory between a worker and the trainer: a few message buffers, used in turn.

The memory has no name: it is gone with the last process that maps it, however that ends.
"""

from __future__ import annotations

import pickle
from ctypes import Array, c_char
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfeed.dataset.message import Buffers, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import BaseContext

__all__ = ["SLOTS", "Ring", "SharedMemory", "SharedObject", "ring_bytes"]

SLOTS = 2
"""Messages under way between a worker and the trainer: one is read, one written. What evens out is encoded ahead."""

SharedMemory = Array[c_char]


class Ring(NamedTuple):
    """``SLOTS`` message buffers of ``rows`` rows in one piece of shared memory; the same in both processes."""

    memory: SharedMemory
    rows: int
    layout: Layout

    @classmethod
    def allocate(cls, context: BaseContext, rows: int, layout: Layout) -> Ring:
        """Make a ring that processes started by ``context`` can map."""
        return cls(context.RawArray(c_char, ring_bytes(rows, layout)), rows, layout)

    def buffers(self) -> list[Buffers]:
        """Return the slots."""
        view = memoryview(self.memory).cast("B")
        size = _slot_bytes(self.rows, self.layout)
        return [Buffers.over(view[slot * size : (slot + 1) * size], self.rows, self.layout) for slot in range(SLOTS)]


def ring_bytes(rows: int, layout: Layout) -> int:
    """Return the bytes of shared memory that a ring of messages of ``rows`` rows takes."""
    return SLOTS * _slot_bytes(rows, layout)


def _slot_bytes(rows: int, layout: Layout) -> int:
    return -(-layout.nbytes(rows) // 8) * 8


class SharedObject(NamedTuple):
    """A pickled object whose arrays lie in shared memory: a plan of a million shards is there once for all workers."""

    pickled: bytes
    memory: SharedMemory
    sizes: Sequence[int]

    @classmethod
    def put(cls, context: BaseContext, item: object) -> SharedObject:
        """Pickle ``item``, its numpy arrays out of band into shared memory."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(item, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        memory = context.RawArray(c_char, max(1, sum(view.nbytes for view in views)))
        whole, start = memoryview(memory).cast("B"), 0
        for view in views:
            whole[start : start + view.nbytes] = view
            start += view.nbytes
        return cls(pickled, memory, [view.nbytes for view in views])

    def get(self) -> Any:  # noqa: ANN401 - as pickle.loads
        """Return the object; its arrays are views of the shared memory."""
        whole, start = memoryview(self.memory).cast("B"), 0
        views = []
        for size in self.sizes:
            views.append(whole[start : start + size])
            start += size
        return pickle.loads(self.pickled, buffers=views)  # noqa: S301 - this process tree's own bytes
