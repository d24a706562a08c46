"""The exceptions that client libraries raise for a store's answers, with what a caller can see in them."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Literal

__all__ = ["ErrorStyle", "cut_body", "refusal", "reset"]

ErrorStyle = Literal["http", "s3"]
"""Whose exceptions: those of fsspec's http file system (aiohttp), or those of s3fs (botocore)."""

_S3_REASONS = {
    401: "InvalidToken",
    403: "AccessDenied",
    404: "NoSuchKey",
    408: "RequestTimeout",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    503: "SlowDown",
}


def refusal(style: ErrorStyle, path: str, code: int, retry_after: float | None, reason: str) -> Exception:
    """Return what the client raises for an answer of status ``code``."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    if style == "s3":
        return _s3(code, headers, reason or _S3_REASONS.get(code, str(code)))
    return _http(path, code, headers, reason)


def reset() -> Exception:
    """Return what a reset connection raises."""
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def cut_body() -> Exception:
    """Return what a body that ends too early raises."""
    from aiohttp import ClientPayloadError

    return ClientPayloadError("Response payload is not completed: the body ended in the middle")


def _http(path: str, code: int, headers: dict[str, str], reason: str) -> Exception:
    from aiohttp import ClientResponseError, RequestInfo
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

    if code == HTTPStatus.NOT_FOUND:
        return FileNotFoundError(path)  # as fsspec's own http file system
    url = URL("http://flaky/").joinpath(path.lstrip("/"))
    request = RequestInfo(url, "GET", CIMultiDictProxy(CIMultiDict()), url)
    message = reason or HTTPStatus(code).phrase
    return ClientResponseError(request, (), status=code, message=message, headers=CIMultiDict(headers))


def _s3(code: int, headers: dict[str, str], reason: str) -> Exception:
    from botocore.exceptions import ClientError
    from s3fs.errors import translate_boto_error

    answer = {
        "Error": {"Code": reason, "Message": f"{reason} ({code}), as scheduled"},
        "ResponseMetadata": {
            "HTTPStatusCode": code,
            "HTTPHeaders": {key.lower(): value for key, value in headers.items()},
        },
    }
    translated: Exception = translate_boto_error(ClientError(answer, "GetObject"))
    return translated
