"""What can go wrong with a call to a store, and with which calls it does."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Event  # noqa: TC003 - so that typing.get_type_hints works on these classes

__all__ = [
    "Changed",
    "CutBody",
    "Effect",
    "Expired",
    "Fault",
    "Latency",
    "Reset",
    "ShortRead",
    "Stall",
    "Status",
]


@dataclass(frozen=True, slots=True)
class Status:
    """The store answers with an HTTP status: 404, 429, 503, ...

    ``retry_after`` seconds go into the header of that name. ``reason`` is the store's own word for the failure
    (``SlowDown``, ``ExpiredToken``).
    """

    code: int
    retry_after: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before an answer arrives."""


@dataclass(frozen=True, slots=True)
class CutBody:
    """The body of a read ends in the middle and the client notices: an error, and no bytes."""


@dataclass(frozen=True, slots=True)
class ShortRead:
    """A read returns only the first ``keep`` (a share) of its bytes, and no error."""

    keep: float = 0.5


@dataclass(frozen=True, slots=True)
class Stall:
    """The call hangs until ``until`` happens, and then goes on as if nothing had been.

    ``until`` is the path of a file that will appear (works in every process), or an :class:`threading.Event` (in this
    process). After ``most_s`` seconds the connection is reset.
    """

    until: str | Event
    most_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Latency:
    """The call takes ``seconds`` longer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Changed:
    """From this call on the object is another one: another ETag, and ``content`` (``None``: the same bytes).

    Use it with ``times=None``. Listings show the change too, once it has happened.
    """

    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """The credential of the client that makes this call has expired: from here on it is refused everything.

    A client that is made anew works, until the schedule says otherwise.
    """

    code: int = 401


Effect = Status | Reset | CutBody | ShortRead | Stall | Latency | Changed | Expired
"""What a fault does to a call."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An effect, and the calls that it has.

    ``op`` and ``path`` are patterns (``*``, ``?``, ``[a-z]``) of operation and path; operations are ``ls``, ``find``,
    ``info``, ``open``, ``read`` (of an opened file) and ``cat_file``. The matching calls are counted from 1 (for each
    path by itself unless ``per_path`` is false), and ``times`` of them from the ``first`` on have the effect; ``None``
    is all.
    """

    effect: Effect
    op: str = "*"
    path: str = "*"
    first: int = 1
    times: int | None = 1
    per_path: bool = True

    def __post_init__(self) -> None:
        if self.first < 1 or (self.times is not None and self.times < 1):
            raise ValueError(f"calls are counted from 1, got first={self.first}, times={self.times}")

    def matches(self, op: str, path: str) -> bool:
        """Return whether a call of ``op`` on ``path`` is counted."""
        return fnmatchcase(op, self.op) and fnmatchcase(path, self.path)

    def hits(self, ordinal: int) -> bool:
        """Return whether the ``ordinal``-th counted call has the effect."""
        return ordinal >= self.first and (self.times is None or ordinal < self.first + self.times)
