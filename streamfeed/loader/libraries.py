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
_NEVER_WRITTEN = [re.compile(rf"^{name}: +0 kB$", re.MULTILINE) for name in ("Anonymous", "Swap")]


def give_back_libraries() -> None:
    """Drop this process's pages of libraries that are as they are in their files; does nothing but on Linux.

    Pages that were written to, as those that the loader patched, stay: they are in no file.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.PyDLL(None)
        for begin, end in clean_pages(_mappings(libc)):
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED)


def _mappings(libc: ctypes.PyDLL) -> str:
    """Return what the system says of this process's memory, at no moment at which Python maps a library.

    That is done step by step, and under the interpreter's lock, which Python's own ``read`` lets go of.
    """
    with Path("/proc/self/smaps").open("rb", buffering=0) as file:
        parts, buffer = [], ctypes.create_string_buffer(1 << 16)
        while (count := libc.read(file.fileno(), buffer, ctypes.c_size_t(len(buffer)))) > 0:
            parts.append(buffer.raw[:count])
    return b"".join(parts).decode(errors="replace")


def clean_pages(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield the addresses, from and to, of what is mapped of libraries, cannot be written to and never was."""
    for mapping in _MAPPING.split(smaps):
        head = _LIBRARY.match(mapping)
        if head and all(line.search(mapping) for line in _NEVER_WRITTEN):
            yield int(head[1], 16), int(head[2], 16)
