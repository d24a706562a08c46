"""Memory for the texts of a window in huge pages, given back as they are used.

Windows of many lanes come and go by turns, piece by piece. On the C library's heap that leaves holes, half as much
again as is used, and to give those back costs a page fault for every 4 KB that is used again: on a virtual machine 5
ms for 8 MB, which takes half a millisecond to copy. A mapping of a window's own has no holes, and huge pages take one
fault for every 2 MB.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HUGE_PAGE", "Region"]

HUGE_PAGE = 2 << 20
"""Bytes; systems whose huge pages are of another size are not asked for any."""

_WASTE = HUGE_PAGE // 2
"""A last page is taken where no more of it would stay empty than this, about."""

_SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")


class Region:
    """``pages`` huge pages, filled from the beginning on and given back from the beginning on."""

    def __init__(self, pages: int) -> None:
        # One more, untouched: it takes address space alone, and lets the first begin where a huge page does.
        self._memory = mmap.mmap(-1, (pages + 1) * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._begin = -ctypes.addressof(ctypes.c_char.from_buffer(self._memory)) % HUGE_PAGE
        with suppress(OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE, self._begin, pages * HUGE_PAGE)
        self._end = self._next = self._begin
        self._end += pages * HUGE_PAGE
        self._used = self._given = 0

    @classmethod
    def of(cls, nbytes: int) -> Region | None:
        """Return a region for most of ``nbytes``; None where they are few or the system has no huge pages for us."""
        if nbytes < HUGE_PAGE or not _offered():
            return None
        return cls((nbytes + _WASTE) // HUGE_PAGE)

    def put(self, texts: Sequence[bytes | memoryview]) -> memoryview | None:
        """Copy ``texts``, one behind the other, and return where they are; None where there is no room for them."""
        begin = at = self._next
        if at + sum(map(len, texts)) > self._end:
            return None
        for text in texts:
            self._memory[at : (at := at + len(text))] = text
        self._next = at
        return memoryview(self._memory)[begin:at]

    def give_back(self, nbytes: int) -> None:
        """Let go of the next ``nbytes`` of what was put, page by page: what they hold is lost."""
        self._used += nbytes
        full = self._used // HUGE_PAGE * HUGE_PAGE
        if full > self._given:
            self._memory.madvise(mmap.MADV_DONTNEED, self._begin + self._given, full - self._given)
            self._given = full


@cache
def _offered() -> bool:
    """Say whether the system gives huge pages of the size that we know to those who ask."""
    try:
        enabled = (_SYSTEM / "enabled").read_text()
        size = (_SYSTEM / "hpage_pmd_size").read_text()
    except OSError:
        return False
    return "[never]" not in enabled and int(size) == HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
