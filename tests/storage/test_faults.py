"""What libraries raise, told apart by status and class; their messages, which may hold secrets, never shown."""

from __future__ import annotations

import errno
import http.client
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from fsspec.exceptions import FSTimeoutError
from multidict import CIMultiDict, CIMultiDictProxy
from s3fs.errors import translate_boto_error
from yarl import URL

from streamfeed.storage.faults import ChangedError, Kind, RefusedError, ShortReadError, classify

SECRET = "hush-hush"
ADDRESS = f"https://host/x?X-Amz-Signature={SECRET}"


def http_error(status: int, headers: dict[str, str] | None = None) -> Exception:
    url = URL(ADDRESS)
    request = aiohttp.RequestInfo(url, "GET", CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientResponseError(request, (), status=status, message=SECRET, headers=CIMultiDict(headers or {}))


def s3_error(code: str, status: int, headers: dict[str, str] | None = None) -> Exception:
    answer = {
        "Error": {"Code": code, "Message": SECRET},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers or {}},
    }
    error: Exception = ClientError(answer, "GetObject")
    return error


def through_s3fs(code: str, status: int) -> Exception:
    error: Exception = translate_boto_error(s3_error(code, status))
    return error


def with_response(status: int) -> Exception:
    class HfHubHTTPError(Exception):
        response = SimpleNamespace(status_code=status, headers={"Retry-After": "4"})

    return HfHubHTTPError(SECRET)


def lookup_that_hides(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception as error:
            raise FileNotFoundError(ADDRESS) from error
    except FileNotFoundError as error:
        return error


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520])
def test_statuses_that_pass_are_transient_wherever_they_stand(status: int) -> None:
    for error in (http_error(status), s3_error("Unknown", status), with_response(status)):
        assert classify(error).kind is Kind.TRANSIENT
        assert classify(error).text.startswith(f"HTTP {status}")
        assert classify(lookup_that_hides(error)).kind is Kind.TRANSIENT, "throttling is never taken for missing"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (s3_error("SlowDown", 503), Kind.TRANSIENT),
        (s3_error("RequestTimeout", 400), Kind.TRANSIENT),
        (through_s3fs("SlowDown", 503), Kind.TRANSIENT),
        (through_s3fs("InternalError", 500), Kind.TRANSIENT),
        (OSError(errno.EBUSY, SECRET), Kind.TRANSIENT),
        (ConnectionResetError(errno.ECONNRESET, SECRET), Kind.TRANSIENT),
        (BrokenPipeError(errno.EPIPE, SECRET), Kind.TRANSIENT),
        (TimeoutError(SECRET), Kind.TRANSIENT),
        (FSTimeoutError(), Kind.TRANSIENT),
        (aiohttp.ServerTimeoutError(SECRET), Kind.TRANSIENT),
        (aiohttp.ServerDisconnectedError(SECRET), Kind.TRANSIENT),
        (aiohttp.ClientPayloadError(SECRET), Kind.TRANSIENT),
        (http.client.IncompleteRead(b""), Kind.TRANSIENT),
        (EndpointConnectionError(endpoint_url=ADDRESS), Kind.TRANSIENT),
        (ReadTimeoutError(endpoint_url=ADDRESS), Kind.TRANSIENT),
        (ShortReadError(), Kind.SHORT),
        (http_error(401), Kind.EXPIRED),
        (s3_error("ExpiredToken", 400), Kind.EXPIRED),
        (s3_error("ExpiredToken", 403), Kind.EXPIRED),
        (through_s3fs("ExpiredToken", 400), Kind.EXPIRED),
        (s3_error("400", 400), Kind.EXPIRED),
        (http_error(404), Kind.MISSING),
        (http_error(410), Kind.MISSING),
        (FileNotFoundError(ADDRESS), Kind.MISSING),
        (s3_error("NoSuchBucket", 404), Kind.MISSING),
        (through_s3fs("NoSuchKey", 404), Kind.MISSING),
        (http_error(412), Kind.CHANGED),
        (http_error(416), Kind.CHANGED),
        (through_s3fs("PreconditionFailed", 412), Kind.CHANGED),
        (ChangedError(), Kind.CHANGED),
        (http_error(403), Kind.REFUSED),
        (s3_error("AccessDenied", 403), Kind.REFUSED),
        (through_s3fs("SignatureDoesNotMatch", 403), Kind.REFUSED),
        (PermissionError(SECRET), Kind.REFUSED),
        (NoCredentialsError(), Kind.REFUSED),
        (http_error(400), Kind.FATAL),
        (http_error(501), Kind.FATAL),
        (ssl.SSLCertVerificationError(SECRET), Kind.FATAL),
        (ValueError(SECRET), Kind.FATAL),
        (RefusedError("the server ignores ranges"), Kind.FATAL),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else type(value).__name__,
)
def test_kinds(error: Exception, kind: Kind) -> None:
    fault = classify(error)
    assert fault.kind is kind
    assert fault.text
    assert SECRET not in fault.text
    assert "host" not in fault.text


def test_a_body_cut_off_by_the_server_is_transient_though_aiohttp_gives_it_a_400() -> None:
    error = aiohttp.ClientPayloadError(SECRET)
    error.__cause__ = aiohttp.http_exceptions.ContentLengthError(SECRET)
    assert error.__cause__.code == 400
    assert classify(error).kind is Kind.TRANSIENT


def test_a_code_that_is_no_word_is_not_shown() -> None:
    assert classify(s3_error(f"Key={SECRET} expired", 403)).text == "HTTP 403"
    assert classify(s3_error("AccessDenied", 403)).text == "HTTP 403 AccessDenied"


@pytest.mark.parametrize(("value", "seconds"), [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("soon", None), ("", None)])
def test_retry_after_is_read_in_any_case_of_its_name(value: str, seconds: float | None) -> None:
    for name in ("Retry-After", "retry-after"):
        assert classify(http_error(503, {name: value})).retry_after == seconds
        assert classify(s3_error("SlowDown", 503, {name: value})).retry_after == seconds


def test_retry_after_may_be_a_date_and_the_past_is_now() -> None:
    soon, past = (format_datetime(datetime.now(UTC) + timedelta(seconds=s), usegmt=True) for s in (60, -60))
    found = classify(http_error(503, {"Retry-After": soon})).retry_after
    assert found is not None
    assert 50 < found <= 60
    assert classify(http_error(503, {"Retry-After": past})).retry_after == 0.0


def test_a_missing_library_says_what_to_install() -> None:
    assert "s3fs" in classify(ImportError("Install s3fs to access S3")).text


def test_exceptions_that_hold_each_other_are_told_apart_all_the_same() -> None:
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    assert classify(first).kind is Kind.FATAL


def test_what_was_deliberately_left_out_of_a_chain_does_not_count() -> None:
    try:
        try:
            raise http_error(503)
        except aiohttp.ClientError:
            raise FileNotFoundError("x") from None
    except FileNotFoundError as error:
        found: Any = classify(error)
    assert found.kind is Kind.MISSING
