"""Preloaded by the fork server alone: what it has to clean up when the trainer ends without doing so.

multiprocessing's fork server listens on a socket file in a temporary folder, which the trainer removes at its exit.
After SIGKILL or ``os._exit`` the server is the last to know the place; it ends when its last client has.
"""

from __future__ import annotations

import atexit
import gc
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

import streamfeed.encode.huggingface
import streamfeed.formats.parquet
import streamfeed.loader.worker  # noqa: F401 - workers are forked with all of it imported
from streamfeed.loader.heap import give_back

__all__: list[str] = []


def _remove_socket() -> None:
    """Remove the socket that this process listened on, and its folder when that is empty then."""
    address = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_address", None)
    if isinstance(address, str) and not address.startswith("\0"):
        with suppress(OSError):
            Path(address).unlink()
            Path(address).parent.rmdir()


gc.collect()
gc.freeze()  # or a worker's first collection would copy every page that it shares with the others
give_back()
atexit.register(_remove_socket)  # not run in forked workers: they leave by os._exit
