"""The HTTP server of the tests is a good one until it is told otherwise, and then wrong as it is told."""

from __future__ import annotations

import gzip
import http.client
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fsspec
import pytest

from streamfeed.testing import Changed, CutBody, Fault, Latency, Reset, ShortRead, Stall, Status
from tests.servers.faulty_handler import ResetBody, StalledBody

if TYPE_CHECKING:
    from tests.servers.web import WebServer

DATA = bytes(range(250)) * 4


@pytest.fixture(autouse=True)
def file(web: WebServer) -> None:
    (web.folder / "a.bin").write_bytes(DATA)


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        target = parts.path + ("?" + parts.query if parts.query else "")
        connection.request(method, target, headers={key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def client(**options: Any) -> Any:
    return fsspec.filesystem("http", skip_instance_cache=True, use_listings_cache=False, **options)


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), ("bytes=990-", 990, 1000), ("bytes=-5", 995, 1000)],
)
def test_ranges(web: WebServer, asked: str, start: int, stop: int) -> None:
    status, headers, body = get(web.address("a.bin"), Range=asked)
    assert (status, body) == (206, DATA[start:stop])
    assert headers["content-range"] == f"bytes {start}-{stop - 1}/1000"


def test_a_range_beyond_the_end_is_refused(web: WebServer) -> None:
    status, headers, body = get(web.address("a.bin"), Range="bytes=1000-1001")
    assert (status, headers["content-range"], body) == (416, "bytes */1000", b"")


def test_heads_tell_size_etag_and_time_without_a_body(web: WebServer) -> None:
    status, headers, body = get(web.address("a.bin"), "HEAD")
    assert (status, headers["content-length"], body) == (200, "1000", b"")
    assert headers["etag"]
    assert headers["last-modified"].endswith("GMT")
    assert headers["accept-ranges"] == "bytes"


def test_preconditions(web: WebServer) -> None:
    url = web.address("a.bin")
    tag = get(url, "HEAD")[1]["etag"]
    assert get(url, If_Match=tag)[0] == 200
    assert get(url, If_Match='"other"')[0] == 412
    assert get(url, If_Range=tag, Range="bytes=0-1")[0] == 206
    assert get(url, If_Range='"other"', Range="bytes=0-1") == get(url)
    (web.folder / "a.bin").write_bytes(DATA + b"more")
    assert get(url, If_Match=tag)[0] == 412


def test_what_is_not_there_is_404(web: WebServer) -> None:
    assert get(web.address("b.bin"))[0] == 404
    assert get(f"{web.url}/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("apache", [False, True])
def test_folders_are_pages_of_links_that_fsspec_reads(web: WebServer, apache: bool) -> None:
    names = ["a.bin", "sub/with space.txt", "sub/100% #1?+=[x].txt", "sub/deeper/漢字.txt"]
    for name in names[1:]:
        (web.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (web.folder / name).write_bytes(name.encode())
    web.apache = apache
    fs = client(simple_links=False, encoded=True)
    found = {entry["name"] for entry in fs.ls(web.url + "/") if "?C=" not in entry["name"]}
    assert found == {web.address("a.bin"), web.address("sub/")}
    below = {entry["name"] for entry in fs.ls(web.address("sub/")) if "?C=" not in entry["name"]}
    assert below == {web.address(name) for name in names[1:3]} | {web.address("sub/deeper/")}
    for name in names[1:]:
        assert fs.cat_file(web.address(name)) == name.encode()
    assert web.count("LIST") == 2


def test_a_server_may_ignore_ranges_and_lack_etags(web: WebServer) -> None:
    web.ranges = web.etags = web.modified = False
    status, headers, body = get(web.address("a.bin"), Range="bytes=0-9")
    assert (status, body) == (200, DATA)
    assert not headers.keys() & {"etag", "last-modified", "accept-ranges", "content-range"}


def test_content_encoding_may_be_negotiated_or_stored(web: WebServer) -> None:
    (web.folder / "b.gz").write_bytes(gzip.compress(DATA))
    url, gz = web.address("a.bin"), web.address("b.gz")
    web.encoded = {"a.bin": "negotiated"}
    assert get(url, Accept_Encoding="identity")[2] == DATA
    status, headers, body = get(url, Accept_Encoding="gzip", Range="bytes=0-9")
    assert (status, headers["content-encoding"], gzip.decompress(body)) == (200, "gzip", DATA)
    web.encoded = {"*": "stored"}
    for address in (url, gz):
        status, headers, body = get(address, Accept_Encoding="identity")
        assert (status, headers["content-encoding"], gzip.decompress(body)) == (200, "gzip", DATA)
        assert get(address, Range="bytes=3-9")[2] == body[3:10]


def test_signed_urls_need_their_signature_and_answer_get_alone(web: WebServer) -> None:
    (web.folder / "signed").mkdir()
    (web.folder / "signed" / "x y.bin").write_bytes(DATA)
    assert get(web.address("signed/x y.bin"))[0] == 403
    assert get(web.signed("signed/x y.bin") + "x")[0] == 403
    assert get(web.signed("signed/x y.bin"))[2] == DATA
    assert get(web.signed("signed/x y.bin"), "HEAD")[0] == 403


def test_scripted_statuses_come_when_they_should_and_carry_retry_after(web: WebServer) -> None:
    url = web.address("a.bin")
    web.script(Fault(Status(503, retry_after=2), op="GET", first=2, times=2))
    assert [get(url, "HEAD")[0], *(get(url)[0] for _ in range(4))] == [200, 200, 503, 503, 200]
    assert [asked.status for asked in web.log if asked.op == "GET"] == [200, 503, 503, 200]
    web.script(Fault(Status(429, retry_after=2, reason="SlowDown")))
    status, headers, body = get(url)
    assert (status, headers["retry-after"]) == (429, "2")
    assert b"<Code>SlowDown</Code>" in body


def test_listings_fail_as_listings(web: WebServer) -> None:
    web.script(Fault(Status(503), op="LIST"))
    assert get(web.address("a.bin"))[0] == 200
    assert get(web.url + "/")[0] == 503
    assert get(web.url + "/")[0] == 200


def test_a_reset_comes_before_an_answer(web: WebServer) -> None:
    web.script(Fault(Reset()))
    with pytest.raises(ConnectionError):
        get(web.address("a.bin"))
    assert get(web.address("a.bin"))[0] == 200


@pytest.mark.parametrize("effect", [CutBody(), ResetBody()])
def test_bodies_end_in_the_middle(web: WebServer, effect: CutBody | ResetBody) -> None:
    web.script(Fault(effect, op="GET"))  # type: ignore[arg-type]  # a fault that only a wire has
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        get(web.address("a.bin"))
    assert get(web.address("a.bin"))[2] == DATA


def test_short_reads_are_whole_answers_of_too_few_bytes(web: WebServer) -> None:
    web.script(Fault(ShortRead(0.25)))
    status, headers, body = get(web.address("a.bin"), Range="bytes=100-199")
    assert (status, body, headers["content-range"]) == (206, DATA[100:125], "bytes 100-124/1000")


@pytest.mark.parametrize("kind", [Stall, StalledBody])
def test_stalls_last_until_the_test_ends_them(web: WebServer, kind: type[Stall]) -> None:
    event = threading.Event()
    web.script(Fault(kind(event)))
    answers: list[bytes] = []
    asking = threading.Thread(target=lambda: answers.append(get(web.address("a.bin"))[2]), daemon=True)
    asking.start()
    while not web.schedule.calls():
        pass
    assert get(web.address("a.bin"))[2] == DATA
    assert not answers
    event.set()
    asking.join(10)
    assert answers == [DATA]


def test_an_object_changes_on_schedule(web: WebServer) -> None:
    url = web.address("a.bin")
    before = get(url, "HEAD")[1]["etag"]
    web.script(Fault(Changed(b"another"), op="GET", first=2, times=None), Fault(Latency(0.0)))
    assert get(url)[2] == DATA
    assert get(url, "HEAD")[1]["etag"] == before
    assert get(url, Range="bytes=0-2")[2] == b"ano"
    assert get(url, "HEAD")[1]["etag"] != before
    assert get(url, If_Match=before)[0] == 412
