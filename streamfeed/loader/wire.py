"""What goes through the pipe between a worker and the trainer: little, since rows go through the ring."""

from __future__ import annotations

import pickle
import struct
import traceback
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import StreamfeedError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Header", "failure", "read_failure"]

_FORMAT = struct.Struct("<7q")


class Header(NamedTuple):
    """Announces a message in ``slot`` of the ring, or a failure (``slot`` is -1, ``payload`` says which)."""

    slot: int
    rows: int
    starts: int
    bytes_read: int
    payload: bytes
    retries: int = 0
    work: bytes = b""
    """what the stages of the worker's threads did since it began, see :meth:`~streamfeed.stages.Figures.of`"""
    spans: tuple[bytes, ...] = ()
    """where they are recorded, those of each of its threads since the last message"""

    def pack(self) -> bytes:
        """Return the bytes to send."""
        spans = b"".join(len(part).to_bytes(8, "little") + part for part in self.spans)
        return b"".join(
            (_FORMAT.pack(*self[:4], self.retries, len(self.work), len(spans)), self.work, spans, self.payload)
        )

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Read what :meth:`pack` wrote."""
        slot, rows, starts, bytes_read, retries, work, spans = _FORMAT.unpack_from(data)
        begin = _FORMAT.size + work
        return cls(
            slot,
            rows,
            starts,
            bytes_read,
            data[begin + spans :],
            retries,
            data[_FORMAT.size : begin],
            tuple(_parts(data[begin : begin + spans])),
        )


def _parts(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        yield data[place + 8 : place + 8 + size]
        place += 8 + size


def failure(error: BaseException) -> Header:
    """Return the header that tells the trainer of ``error``: one of ours as itself, any other as text.

    Never raises, whatever a user's exception does when it is printed or pickled.
    """
    details = "".join(traceback.format_exception(error))
    summary = "".join(traceback.format_exception_only(error)).strip()
    return Header(-1, 0, 0, 0, pickle.dumps((_pickled(error), summary, details)))


def _pickled(error: BaseException) -> bytes:
    if not isinstance(error, StreamfeedError):
        return b""
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - a subclass, or an attribute of it, may raise anything
        return b""


def read_failure(header: Header, worker: int) -> StreamfeedError:
    """Return what the trainer raises: one of ours as it was, its traceback as a note; any other as text."""
    pickled, summary, details = pickle.loads(header.payload)  # noqa: S301 - sent by our own worker
    try:
        error = pickle.loads(pickled) if pickled else None  # noqa: S301 - sent by our own worker
    except Exception:  # noqa: BLE001 - some exceptions pickle but do not come back
        error = None
    if isinstance(error, StreamfeedError):
        error.add_note(f"raised in worker {worker}:\n{details}")
        return error
    return WorkerError(f"worker {worker} raised {summary}", details)
