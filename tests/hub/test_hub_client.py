"""An answer of the Hub, or of what stands before it, is looked at before a byte of it is believed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.storage.faults import ChangedError, RefusedError, ShortReadError
from streamfeed.storage.hub.address import HubAddress
from streamfeed.storage.hub.client import HubClient, HubFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATA = bytes(range(100))
LISTED = HubFile("x.jsonl", len(DATA), "tag")
GOOD = {"Content-Range": "bytes 10-19/100", "ETag": '"tag"'}


class Response:
    history: tuple[Any, ...] = ()

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self._body = body

    def iter_raw(self) -> Iterator[bytes]:
        yield self._body[:4]
        yield self._body[4:]


class ScriptedClient(HubClient):
    def __init__(self, response: Response) -> None:
        super().__init__()
        self._response = response

    @contextmanager
    def _stream(self, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
        yield self._response


def read(status: int, headers: Mapping[str, str], body: bytes = DATA[10:20], span: tuple[int, int] = (10, 20)) -> bytes:
    pieces: list[bytes] = []
    address = HubAddress("org/books", "main", LISTED.path)
    ScriptedClient(Response(status, headers, body)).read(address, span, LISTED, pieces.append)
    return b"".join(pieces)


def test_the_range_asked_for_is_read_and_nothing_behind_it() -> None:
    assert read(206, GOOD) == DATA[10:20]
    assert read(206, GOOD, DATA[10:]) == DATA[10:20]
    assert read(200, {}, DATA, (0, 100)) == DATA


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (200, {}, RefusedError),
        (206, {**GOOD, "Content-Range": "bytes 0-9/100"}, RefusedError),
        (206, {**GOOD, "Content-Range": "bytes 0-19/100"}, RefusedError),
        (206, {"ETag": '"tag"'}, RefusedError),
        (206, {**GOOD, "Content-Range": "bytes 10-19/90"}, ChangedError),
        (206, {**GOOD, "Content-Range": "bytes 10-14/15"}, ChangedError),
        (206, {**GOOD, "ETag": '"other"'}, ChangedError),
    ],
)
def test_another_answer_is_an_error_and_gives_no_byte(
    status: int, headers: Mapping[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(status, headers)


def test_a_short_answer_is_told() -> None:
    with pytest.raises(ShortReadError):
        read(206, GOOD, DATA[10:15])
    with pytest.raises(ShortReadError):
        read(206, {**GOOD, "Content-Range": "bytes 10-14/100"}, DATA[10:15])
