"""A worker's heap: one, kept, and given back to the system seldom."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from time import monotonic

from streamfeed.loader.libraries import give_back_libraries

__all__ = ["Heap", "arrow_on_the_heap", "collect_seldom", "give_back"]

SECONDS_BETWEEN_TRIMS = 30.0
"""What is given back is asked for again, zeroed, before long, and a heap that is let alone stays as large; but what
loading took, or one unusually large document, should not be held for ever."""

MALLOPT_TRIM_THRESHOLD, MALLOPT_MMAP_THRESHOLD, MALLOPT_ARENA_MAX = -1, -3, -8
KEEP_BYTES = 32 << 20

ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable by which Arrow chooses where it allocates, when it is imported."""

CONTAINERS = 5_000
"""New containers between two garbage collections, for 700: packers hold thousands for long, a batch of records has as
many, and none is in a cycle."""


class Heap:
    """Keeps a worker's heap near what it uses, at few calls to the kernel.

    Left to itself, glibc gives the top of the heap back and asks for it again, zeroed page by page, with every run, and
    Arrow's own pool holds half as much again as is used. So Arrow is made to allocate from the C library, which keeps
    what it has, and is seldom asked to give free pages back. All of it is one arena, where the engine has one of the
    process's ``threads``, since the holes of one are of no use to another; what makes most holes, windows, is elsewhere
    (``lane/pages.py``). Where the C library is not glibc, nothing happens.
    """

    def __init__(self, threads: int = 1) -> None:
        import pyarrow as pa

        arrow_on_the_heap()
        if os.environ[ARROW_POOL] == "system":  # too late in a fork of a trainer that had imported Arrow
            pa.set_memory_pool(pa.system_memory_pool())
        self._begun = False
        self._due = monotonic() + SECONDS_BETWEEN_TRIMS
        with contextlib.suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            libc.mallopt(MALLOPT_MMAP_THRESHOLD, KEEP_BYTES)
            libc.mallopt(MALLOPT_TRIM_THRESHOLD, KEEP_BYTES)
            libc.mallopt(MALLOPT_ARENA_MAX, threads)

    def tick(self) -> None:
        """Note that a message was made: by the first, what all take is there; from time to time free pages go back."""
        if not self._begun:
            self._begun = True
            collect_seldom()
            give_back_libraries()
        if monotonic() >= self._due:
            self._due = monotonic() + SECONDS_BETWEEN_TRIMS
            give_back()


def arrow_on_the_heap() -> None:
    """Let Arrow allocate from the C library, unless the user chose; does nothing once Arrow was imported.

    ``set_memory_pool`` is not enough: pages of Parquet, decompressed and decoded, go by what C++ holds for the default.
    """
    os.environ.setdefault(ARROW_POOL, "system")


def collect_seldom() -> None:
    """Look for garbage less often, and never in what there is by now: it stays."""
    gc.freeze()
    gc.set_threshold(CONTAINERS, *gc.get_threshold()[1:])


def give_back() -> None:
    """Give the pages that this process has freed back to the system, where the C library knows how."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
