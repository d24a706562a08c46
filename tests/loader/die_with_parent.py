"""For processes that tests start: they end when their parent has."""

from __future__ import annotations

import ctypes
import signal
import sys


def die_with_parent() -> None:
    """Be killed when the parent has ended, however it did: a process in a session of its own would go on for ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
