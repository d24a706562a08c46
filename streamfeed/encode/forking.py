"""Forks that wait until fastokens is at rest: a lock that one of its threads holds would never open in a child.

The engine hands texts to threads of its own, which are not in a forked child. Its lock is held for moments, also when
an encode is over and a thread goes to sleep; of children forked right behind one, one in a thousand hung.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["no_fork"]

_LOG = logging.getLogger("streamfeed.encode")

_NAME = "fastokens"
"""What names of the engine's threads begin with."""

_PAUSE_S = 1e-4
_PAUSES = 10_000


@cache
def no_fork() -> AbstractContextManager[bool]:
    """Return a context in which no thread of this process forks by ``os.fork``: they wait for its end.

    It is the same for all engines, so that one encodes at a time: each uses all cores by itself, or is alone in a
    worker.
    """
    lock = RLock()
    with suppress(AttributeError):  # systems without a fork
        os.register_at_fork(before=partial(_rest, lock), after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def _rest(lock: AbstractContextManager[bool]) -> None:
    """Take ``lock``, and wait until no thread of the engine runs; for a second at most, which is told."""
    lock.__enter__()
    for _ in range(_PAUSES):
        if all(_sleeps(task) for task in _tasks()):
            return
        time.sleep(_PAUSE_S)
    _warn()


@cache
def _warn() -> None:
    """Say once that a fork did not wait any longer."""
    _LOG.warning(
        "this process forked while threads of fastokens that are not streamfeed's were at work: a child that encodes "
        "may hang; fork when no other thread encodes, or start processes by forkserver"
    )


def _tasks() -> list[Path]:
    with suppress(OSError):
        return list(Path("/proc/self/task").iterdir())
    return []


def _sleeps(task: Path) -> bool:
    """Say whether a thread is none of the engine's, or sleeps: one that runs, or waits for a core, may hold a lock."""
    with suppress(OSError):
        name, _, behind = (task / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
        return not name.startswith(_NAME) or behind.split()[0] == "S"
    return True
