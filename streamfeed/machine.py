"""What this machine has left for us: memory, shared memory, file descriptors. The one place that asks the system.

Where the system does not say (no ``/proc``, no cgroup, no such limit) the answer is None, and nobody is refused for it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SHARED_MEMORY", "Descriptors", "Machine", "allow_descriptors"]

SHARED_MEMORY = Path("dev/shm")
"""Below the root: where Linux has memory that processes share, and Python's ``RawArray`` puts its own."""

UNLIMITED = 1 << 60
"""A limit of a cgroup from here on is none: version 1 writes the largest number of pages there is."""


class Descriptors(NamedTuple):
    """How many files a process may have open by its ``soft`` and ``hard`` limit, and how many this one has."""

    soft: int
    hard: int
    open: int


@dataclass(frozen=True)
class Machine:
    """What is free on this machine for this process and those it starts; None where the system does not say.

    ``memory``: bytes that can still be taken before the system, or the cgroup that we run in, ends a process: caches of
    files count as free, swap does not. ``memory_of`` names whose limit that is. ``shm``: free bytes of shared memory.
    ``descriptors``: those of this process.
    """

    memory: int | None = None
    memory_of: str = "this machine"
    shm: int | None = None
    descriptors: Descriptors | None = None

    @classmethod
    def look(cls, root: Path = Path("/")) -> Self:
        """Ask the system whose files lie below ``root``; takes about a millisecond."""
        found = [(free, name) for free, name in ((_meminfo(root), "this machine"), *_cgroups(root)) if free is not None]
        memory, memory_of = min(found) if found else (None, "this machine")
        return cls(memory, memory_of, _free_bytes(root / SHARED_MEMORY), _descriptors(root))

    def shared(self, ranks: int) -> Self:
        """Return an even part of it, for one of ``ranks`` ranks on this machine; descriptors are each process's own."""
        memory = None if self.memory is None else self.memory // max(1, ranks)
        return replace(self, memory=memory, shm=None if self.shm is None else self.shm // max(1, ranks))


def allow_descriptors(count: int) -> bool:
    """Raise this process's soft limit to ``count`` open files where it is lower; False where the hard one forbids it.

    The hard limit stays. True where the system has no such limits.
    """
    try:
        import resource
    except ImportError:
        return True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _finite(soft) >= count:
        return True
    if _finite(hard) < count:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except (ValueError, OSError):  # macOS allows less than it says
        return False
    return True


def _finite(limit: int) -> int:
    return UNLIMITED if limit < 0 else limit


def _descriptors(root: Path) -> Descriptors | None:
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for folder in (root / "proc/self/fd", root / "dev/fd"):
        with contextlib.suppress(OSError):
            return Descriptors(_finite(soft), _finite(hard), sum(1 for _ in folder.iterdir()))
    return Descriptors(_finite(soft), _finite(hard), 0)


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except (AttributeError, OSError):
        return None
    return found.f_bavail * found.f_frsize


def _meminfo(root: Path) -> int | None:
    """Return the bytes that the kernel can hand out without swapping."""
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _cgroups(root: Path) -> Iterator[tuple[int | None, str]]:
    """Yield what each limited cgroup that we are in has left, and its name: ours, and every one around it.

    In a container the path that the kernel says may be one of the host, which is not to be seen: what is mounted is the
    container's own cgroup then.
    """
    for line in _lines(root / "proc/self/cgroup"):
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:
            top, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = top / path.strip("/")
        for folder in (own, *own.parents):
            if folder == top or top in folder.parents:
                yield _left(folder, limit, used), f"the cgroup of this process ({limit})"


def _left(folder: Path, limit_name: str, used_name: str) -> int | None:
    """Return a cgroup's limit less what it uses for good: the kernel takes back the pages of files that it caches."""
    limit, used = _number(folder / limit_name), _number(folder / used_name)
    if limit is None or used is None or limit >= UNLIMITED:
        return None
    stat = dict(line.split(maxsplit=1) for line in _lines(folder / "memory.stat") if " " in line)
    total = "total_" if "total_inactive_file" in stat else ""  # version 1 says what its children use apart
    cached = sum(int(stat.get(total + name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, limit - max(0, used - cached))


def _number(path: Path) -> int | None:
    """Return the number in a file; None where there is none, as in ``max``."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
