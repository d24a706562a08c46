"""Letting go of what was read of libraries to load them.

A library is mapped, and the loader reads its tables of symbols and relocations once; they stay in the process's memory,
20 to 30 MB with Arrow's libraries. What is needed after all comes from the page cache again.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clean_pages", "give_back_libraries"]

_DONTNEED = 4
"""``MADV_DONTNEED`` of Linux, where alone there is the list that it is used with."""

_MAPPING = re.compile(r"\n(?=[0-9a-f]+-[0-9a-f]+ )")
_LIBRARY = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p .*\.so[.0-9]*\n")
_NEVER_WRITTEN = re.compile(r"^Anonymous: +0 kB$", re.MULTILINE)


def give_back_libraries() -> None:
    """Drop this process's pages of libraries that are as they are in their files; does nothing but on Linux.

    Pages that were written to, as those that the loader patched, stay: they are in no file.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        for begin, end in clean_pages(Path("/proc/self/smaps").read_text()):
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED)


def clean_pages(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield the addresses, from and to, of what is mapped of libraries, cannot be written to and never was."""
    for mapping in _MAPPING.split(smaps):
        head = _LIBRARY.match(mapping)
        if head and _NEVER_WRITTEN.search(mapping):
            yield int(head[1], 16), int(head[2], 16)
