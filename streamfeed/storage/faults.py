"""What went wrong in a store, told from the exceptions of many libraries by their status, code and class.

A message of such an exception is never shown: it may hold signed URLs and keys.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ChangedError", "Fault", "Kind", "RefusedError", "ShortReadError", "classify"]


class Kind(Enum):
    """What can be done about a fault."""

    TRANSIENT = "transient"
    SHORT = "short"  # transient too, and perhaps the sign of a file that has shrunk
    EXPIRED = "expired"
    MISSING = "missing"
    CHANGED = "changed"
    REFUSED = "refused"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure: its ``kind``, words for it that hold no secret, and the seconds that the store asked to wait."""

    kind: Kind
    text: str
    retry_after: float | None = None


class ShortReadError(Exception):
    """A store answered with fewer bytes than it was asked for, in the middle of a file."""


class ChangedError(Exception):
    """A store answered with another version than the one asked for."""


class RefusedError(Exception):
    """A store's answer cannot be used; the message is ours and safe to show."""


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_TRANSIENT_STATUS = frozenset((408, 425, 429))
_FATAL_STATUS = frozenset((501, 505))
_CODES = {
    Kind.TRANSIENT: _set(
        "SlowDown RequestTimeout InternalError ServiceUnavailable Throttling ThrottlingException RequestLimitExceeded"
        " TooManyRequests TooManyRequestsException ServerBusy OperationTimedOut BandwidthLimitExceeded RequestThrottled"
        " IncompleteBody"
    ),
    Kind.EXPIRED: _set(
        "ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired InvalidToken InvalidAuthenticationInfo"
    ),
    Kind.MISSING: _set("NoSuchKey NoSuchBucket NotFound BlobNotFound ContainerNotFound"),
    Kind.CHANGED: _set("PreconditionFailed InvalidRange ConditionNotMet"),
    Kind.REFUSED: _set("AccessDenied InvalidAccessKeyId SignatureDoesNotMatch AllAccessDisabled"),
}
_UNSAFE = _set("SSLCertVerificationError ClientConnectorCertificateError NoCredentialsError")
_BROKEN_CONNECTION = _set(
    "ConnectionError ClientConnectionError ClientPayloadError ServerDisconnectedError IncompleteRead"
    " IncompleteReadError ProtocolError TransportError HTTPClientError ChunkedEncodingError ResponseParserError"
    " ResponseStreamingError ServiceResponseError ServiceRequestError EOFError ContentLengthError"
    " TransferEncodingError HttpProcessingError HTTPException gaierror"
)
_TIMEOUTS = _set("TimeoutError FSTimeoutError Timeout TimeoutException ConnectTimeoutError")
_ERRNO_NAMES = _set(
    "ECONNRESET EPIPE ETIMEDOUT ENETUNREACH EHOSTUNREACH ECONNREFUSED ECONNABORTED ENETDOWN ENETRESET"
    " EBUSY EREMOTEIO"  # how s3fs says SlowDown and InternalError
)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{2,59}")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    code: str
    headers: Mapping[str, Any]


def classify(error: BaseException) -> Fault:
    """Return what ``error`` says, looking through the exceptions that it was raised from.

    A status or code of the store counts for more than a class: libraries turn a 503 of a look-up into
    ``FileNotFoundError``, and throttling must never be taken for a missing file.
    """
    chain = list(_chain(error))
    if isinstance(error, ShortReadError):
        return Fault(Kind.SHORT, "the answer was cut short")
    if isinstance(error, ChangedError):
        return Fault(Kind.CHANGED, "another version answered")
    if isinstance(error, RefusedError):
        return Fault(Kind.FATAL, str(error))
    answer = next((found for one in chain if (found := _answer(one)) is not None), None)
    if answer is not None:
        return Fault(_kind_of(answer), _words(answer), _retry_after(answer.headers))
    if isinstance(error, ImportError):
        return Fault(Kind.FATAL, str(error))  # "Install s3fs to access S3"
    for one in chain:
        fault = _by_class(one)
        if fault is not None:
            return fault
    return Fault(Kind.FATAL, _class(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, None if one.__suppress_context__ else one.__context__]


def _answer(error: BaseException) -> _Answer | None:
    """Return the store's answer that an exception carries."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        meta, about = response.get("ResponseMetadata") or {}, response.get("Error") or {}
        code = str(about.get("Code") or "")
        status = _number(meta.get("HTTPStatusCode")) or _number(code)
        return _Answer(status, code, meta.get("HTTPHeaders") or {}) if status or code else None
    if _names(error) & _BROKEN_CONNECTION:  # aiohttp gives a body that was cut off the code 400
        return None
    for holder in (response, error):  # requests, httpx, azure; aiohttp, gcsfs, urllib
        status = next((n for name in ("status_code", "status", "code") if (n := _number(getattr(holder, name, 0)))), 0)
        if status:
            headers = getattr(holder, "headers", None) or {}
            return _Answer(status, str(getattr(error, "error_code", None) or ""), headers)
    return None


def _number(value: object) -> int:
    """Return an HTTP status, 0 for what is none."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return int(value) if isinstance(value, int) and 100 <= value <= 599 else 0


def _kind_of(answer: _Answer) -> Kind:
    status, code = answer.status, answer.code
    for kind, codes in _CODES.items():
        if code in codes:
            return kind
    if status in _TRANSIENT_STATUS or (status >= 500 and status not in _FATAL_STATUS):
        return Kind.TRANSIENT
    if status == 401 or (status == 400 and code in {"400", "Bad Request"}):
        return Kind.EXPIRED  # S3 answers an expired token of a HEAD request with a bare 400
    if status in {404, 410}:
        return Kind.MISSING
    if status in {412, 416}:
        return Kind.CHANGED
    return Kind.REFUSED if status == 403 else Kind.FATAL


def _words(answer: _Answer) -> str:
    named = answer.code if _WORD.fullmatch(answer.code) else ""
    if not answer.status:
        return named or "an answer without a status"
    return f"HTTP {answer.status} {named}".rstrip()


def _by_class(error: BaseException) -> Fault | None:
    names = _names(error)
    if names & _UNSAFE:
        return Fault(Kind.REFUSED if "NoCredentialsError" in names else Kind.FATAL, _class(error))
    if names & _TIMEOUTS or type(error).__name__.endswith(("TimeoutError", "Timeout")):
        return Fault(Kind.TRANSIENT, f"timed out ({_class(error)})")
    if names & _BROKEN_CONNECTION:
        return Fault(Kind.TRANSIENT, f"the connection broke ({_class(error)})")
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return Fault(Kind.MISSING, "not found")
    if isinstance(error, PermissionError):
        return Fault(Kind.REFUSED, "permission denied")
    if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in _ERRNO_NAMES:
        return Fault(Kind.TRANSIENT, f"{_class(error)} {errno.errorcode[error.errno or 0]}")
    return None


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _class(error: BaseException) -> str:
    cls = type(error)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__.partition('.')[0]}.{cls.__name__}"


def _retry_after(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds of a Retry-After header, which may also be a date."""
    value = next((str(headers[name]) for name in headers if str(name).lower() == "retry-after"), "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
