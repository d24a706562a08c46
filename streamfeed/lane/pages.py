"""Huge pages for the texts of windows, used again as they become free.

Windows of many lanes come and go by turns, piece by piece. On the C library's heap that leaves holes, half as much
again as is used, and to give those back costs a page fault for every 4 KB that is used again: on a virtual machine 5
ms for 8 MB, which takes half a millisecond to copy. Pages of 2 MB that hold nothing else have no holes, take one fault,
and are not zeroed again for the next window.
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

__all__ = ["HUGE_PAGE", "Filling", "Page", "Pages"]

HUGE_PAGE = 2 << 20
"""Bytes; systems whose huge pages are of another size are not asked for any."""

KEPT = 1
"""Free pages that are kept: windows take some at once, and lanes free one at a time. With 4, memory is 5 MB a worker
more, and as little time goes to the kernel."""

_HALF = HUGE_PAGE // 2
"""Less text than this gets no page, and no page is begun for a piece that is larger: much of it would be empty."""

_SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")


class Page:
    """One huge page, filled from the beginning on. ``pieces`` of what it holds are still needed."""

    def __init__(self) -> None:
        # Twice as much address space, of which half is never touched: in it is a whole page where one can be.
        self._memory = mmap.mmap(-1, 2 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._begin = -ctypes.addressof(ctypes.c_char.from_buffer(self._memory)) % HUGE_PAGE
        with suppress(OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE, self._begin, HUGE_PAGE)
        self._used = 0
        self.pieces = 0

    def put(self, texts: Sequence[bytes | memoryview], nbytes: int) -> memoryview | None:
        """Copy ``texts``, of ``nbytes``, one behind the other; return where they are, None where there is no room."""
        if self._used + nbytes > HUGE_PAGE:
            return None
        begin = at = self._begin + self._used
        for text in texts:
            self._memory[at : (at := at + len(text))] = text
        self._used += nbytes
        self.pieces += 1
        return memoryview(self._memory)[begin:at]

    def clear(self) -> None:
        """Forget what it holds."""
        self._used = self.pieces = 0


class Pages:
    """The pages of one thread's lanes."""

    def __init__(self) -> None:
        self._free: list[Page] = []

    def take(self) -> Page:
        """Return an empty page."""
        return self._free.pop() if self._free else Page()

    def used(self, page: Page) -> None:
        """Note that one piece in ``page`` is not needed any more; take the page back with the last of them."""
        page.pieces -= 1
        if not page.pieces and len(self._free) < KEPT:
            page.clear()
            self._free.append(page)


class Filling:
    """Puts the texts of one window, ``nbytes`` of UTF-8, into ``pages``; not where they are few, or there are none."""

    def __init__(self, pages: Pages | None, nbytes: int) -> None:
        self._pages = pages if nbytes >= HUGE_PAGE and _offered() else None
        self._left = nbytes
        self._page: Page | None = None

    def put(self, texts: Sequence[bytes | memoryview], nbytes: int) -> tuple[memoryview, Page] | None:
        """Copy the next texts, of ``nbytes``; return where they are, or None where they had better be elsewhere."""
        if self._pages is None:
            return None
        place = None if self._page is None else self._page.put(texts, nbytes)
        if place is None and nbytes <= _HALF <= self._left:
            self._page = self._pages.take()
            place = self._page.put(texts, nbytes)
        self._left -= nbytes
        return None if place is None or self._page is None else (place, self._page)


@cache
def _offered() -> bool:
    """Say whether the system gives huge pages of the size that we know to those who ask."""
    try:
        enabled = (_SYSTEM / "enabled").read_text()
        size = (_SYSTEM / "hpage_pmd_size").read_text()
    except OSError:
        return False
    return "[never]" not in enabled and int(size) == HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
