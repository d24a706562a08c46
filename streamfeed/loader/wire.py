"""What goes through the pipe between a worker and the trainer: little, since rows go through the ring."""

from __future__ import annotations

import pickle
import struct
import traceback
from typing import NamedTuple

from streamfeed.errors import StreamfeedError, WorkerError

__all__ = ["Header", "failure", "read_failure"]

_FORMAT = struct.Struct("<4q")


class Header(NamedTuple):
    """Announces a message in ``slot`` of the ring, or a failure (``slot`` is -1, ``payload`` says which)."""

    slot: int
    rows: int
    starts: int
    bytes_read: int
    payload: bytes

    def pack(self) -> bytes:
        """Return the bytes to send."""
        return _FORMAT.pack(*self[:4]) + self.payload

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Read what :meth:`pack` wrote."""
        return cls(*_FORMAT.unpack_from(data), data[_FORMAT.size :])


def failure(error: BaseException) -> Header:
    """Return the header that tells the trainer of ``error``; one that does not pickle travels as text."""
    details = "".join(traceback.format_exception(error))
    summary = f"{type(error).__name__}: {error}"
    try:
        payload = pickle.dumps((error, summary, details))
        pickle.loads(payload)  # noqa: S301 - our own bytes: some exceptions pickle but do not come back
    except Exception:  # noqa: BLE001 - whatever a user's exception does when it is pickled
        payload = pickle.dumps((None, summary, details))
    return Header(-1, 0, 0, 0, payload)


def read_failure(header: Header, worker: int) -> BaseException:
    """Return the exception that the trainer raises: the worker's own where it is one of ours, with its traceback noted."""
    error, summary, details = pickle.loads(header.payload)  # noqa: S301 - sent by our own worker
    if isinstance(error, StreamfeedError):
        error.add_note(f"raised in worker {worker}:\n{details}")
        return error
    return WorkerError(f"worker {worker} raised {summary}", details)
