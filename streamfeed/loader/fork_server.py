"""Preloaded by the fork server alone: what it has to clean up when the trainer ends without doing so.

multiprocessing's fork server listens on a socket file in a temporary folder, which the trainer removes at its exit.
After SIGKILL or ``os._exit`` the server is the last to know the place; it ends when its last client has.
"""

from __future__ import annotations

import atexit
import gc
from contextlib import suppress
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path

from streamfeed.loader.heap import arrow_on_the_heap, give_back
from streamfeed.loader.libraries import give_back_libraries

__all__: list[str] = []

IMPORTED = ("streamfeed.encode.huggingface", "streamfeed.formats.parquet", "streamfeed.loader.worker")
"""Workers are forked with all of it."""


def _remove_socket() -> None:
    """Remove the socket that this process listened on, and its folder when that is empty then."""
    address = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_address", None)
    if isinstance(address, str) and not address.startswith("\0"):
        with suppress(OSError):
            Path(address).unlink()
            Path(address).parent.rmdir()


arrow_on_the_heap()  # before anything imports Arrow
for name in IMPORTED:
    import_module(name)
gc.collect()
gc.freeze()  # or a worker's first collection would copy every page that it shares with the others
give_back()
give_back_libraries()
atexit.register(_remove_socket)  # not run in forked workers: they leave by os._exit
