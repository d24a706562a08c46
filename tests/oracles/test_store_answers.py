"""Real clients against answers that go wrong on the wire: HTTP, and S3 through a proxy in front of the real server."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.config import RetryPolicy
from streamfeed.errors import ReadError, SourceError, StreamfeedError
from streamfeed.storage.retry import Retrier
from streamfeed.testing import Changed, CutBody, Fault, Reset, ShortRead, Status
from tests.corpora import FIELDS
from tests.servers.faulty_handler import FaultyServer, ResetBody, StalledBody
from tests.servers.web import SIGNATURE
from tests.streams import Batches, Run, corpus, equal, stream, take

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_proxy import S3Proxy
    from tests.servers.seaweed import Bucket
    from tests.servers.web import WebServer

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_engine")]

KIND = "jsonl.zst"
EFFECTS = [
    Status(429),
    Status(503, retry_after=2),
    Reset(),
    CutBody(),
    ResetBody(),
    ShortRead(),
]


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    kept = Retrier.__init__.__kwdefaults__
    assert kept is not None
    monkeypatch.setitem(kept, "sleep", waits.append)
    return waits


class Place:
    """A corpus behind a server whose answers go wrong as scripted."""

    def __init__(self, server: FaultyServer, source: Source, folder: Path, tokenizer: Any) -> None:
        self.server = server
        self.here = stream(folder, KIND, tokenizer, epochs=1)
        self.config = replace(self.here, sources=[source])

    def whole(self) -> Batches:
        return take(one(self.here))


def one(config: StreamConfig) -> Any:
    return Run.start(config, 1, 2).loaders[0]


@pytest.fixture(params=["s3", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Any) -> Place:
    if request.param == "http":
        web: WebServer = request.getfixturevalue("web")
        corpus(web.folder / "in", KIND, [20, 13, 16], words=40)
        return Place(web, Source(web.address("in") + "/", text=FIELDS[KIND]), web.folder / "in", tokenizer)
    bucket: Bucket = request.getfixturevalue("bucket")
    proxy: S3Proxy = request.getfixturevalue("s3_proxy")
    corpus(tmp_path / "in", KIND, [20, 13, 16], words=40)
    bucket.put_folder(tmp_path / "in", "in/")
    source = Source(f"{bucket.url}/in", text=FIELDS[KIND], storage_options=proxy.options)
    return Place(proxy, source, tmp_path / "in", tokenizer)


@pytest.mark.parametrize("effect", EFFECTS, ids=repr)
def test_an_answer_that_goes_wrong_changes_no_row(place: Place, effect: Any) -> None:
    whole = place.whole()
    place.server.script()
    assert equal(take(one(place.config)), whole)
    count = place.server.count("GET")
    assert count >= 3
    for first in (1, (count + 1) // 2, count):
        place.server.script(Fault(effect, op="GET", first=first, times=3, per_path=False))
        assert equal(take(one(place.config)), whole), first
        assert sum(bool(asked.effects) for asked in place.server.log) == 3


@pytest.mark.parametrize("effect", EFFECTS[:3], ids=repr)
def test_a_listing_that_goes_wrong_changes_no_row(place: Place, effect: Any) -> None:
    place.server.script(Fault(effect, op="LIST", times=3))
    assert equal(take(one(place.config)), place.whole())
    assert place.server.count("LIST") >= 4


def test_a_store_that_does_not_list_is_an_error_and_never_an_empty_one(place: Place) -> None:
    attempts = RetryPolicy().attempts
    for effect in (Status(503), Status(429), Reset()):
        place.server.script(*[Fault(effect, op=op, times=None) for op in ("LIST", "HEAD", "GET")])
        with pytest.raises(SourceError, match=f"{attempts} attempts"):
            one(place.config)


@pytest.mark.parametrize("effect", [CutBody(), ResetBody()], ids=repr)
def test_a_body_that_is_cut_goes_on_at_the_byte_reached(place: Place, effect: Any) -> None:
    loader = one(place.config)
    place.server.script(Fault(effect, op="GET", path="*001.*"))
    assert equal(take(loader), place.whole())
    asked = [one.headers["range"] for one in place.server.log if one.op == "GET" and "001" in one.path]
    at = next(
        i for i, one in enumerate(o for o in place.server.log if o.op == "GET" and "001" in o.path) if one.effects
    )
    (start, stop), (again, until) = (range_of(text) for text in asked[at : at + 2])
    assert until == stop
    assert start < again < stop


def range_of(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"bytes=(\d+)-(\d+)", text)
    assert found is not None, text  # an open-ended range, or none, would be wrong already
    return int(found[1]), int(found[2]) + 1


def test_every_read_asks_for_a_closed_range(place: Place) -> None:
    place.server.script()
    take(one(place.config))
    for asked in place.server.log:
        if asked.op == "GET":
            range_of(asked.headers["range"])


def test_a_body_that_stalls_is_given_up_and_goes_on(place: Place) -> None:
    impatient = [replace(source, retry=RetryPolicy(stall_s=0.5)) for source in place.config.sources]
    place.config = replace(place.config, sources=impatient)
    never = threading.Event()
    try:
        place.server.script(Fault(StalledBody(never), op="GET", path="*001.*"))
        assert equal(take(one(place.config)), place.whole())
    finally:
        never.set()


def test_an_s3_object_that_is_overwritten_or_removed_is_an_error(
    bucket: Bucket, tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path / "in", KIND, [20, 13, 16], words=40)
    bucket.put_folder(tmp_path / "in", "in/")
    source = Source(f"{bucket.url}/in", text=FIELDS[KIND], storage_options=bucket.options)
    config = replace(stream(tmp_path, KIND, tokenizer, epochs=1), sources=[source])
    data = (tmp_path / "in" / "001.jsonl.zst").read_bytes()
    for change in (data + b"x", bytes(len(data))):
        loader = one(config)
        bucket.put("in/001.jsonl.zst", change)
        with pytest.raises(ReadError, match=r"001\.jsonl\.zst.*(when the run planned|listed)"):
            take(loader)
        bucket.put("in/001.jsonl.zst", data)
    loader = one(config)
    bucket.delete("in/001.jsonl.zst")
    with pytest.raises(ReadError, match=r"001\.jsonl\.zst.*gone"):
        take(loader)


# HTTP servers as there are


@pytest.fixture
def http(web: WebServer, tokenizer: Any) -> Place:
    corpus(web.folder / "in", KIND, [20, 13, 16], words=40)
    return Place(web, Source(web.address("in") + "/", text=FIELDS[KIND]), web.folder / "in", tokenizer)


@pytest.mark.parametrize("content", [None, b"another"], ids=["version", "size"])
def test_an_http_object_that_changed_since_it_was_listed_is_an_error(http: Place, content: bytes | None) -> None:
    loader = one(http.config)
    http.server.script(Fault(Changed(content), path="*001.*", times=None))
    with pytest.raises(ReadError, match=r"001\.jsonl\.zst.*(when the run planned|listed)"):
        take(loader)


@pytest.mark.parametrize("lacks", ["etags", "modified", "ranges", "nothing but apache"])
def test_servers_that_lack_something_give_the_same_rows(http: Place, web: WebServer, lacks: str) -> None:
    if lacks == "nothing but apache":
        web.apache = True
    else:
        setattr(web, lacks, False)
    assert equal(take(one(http.config)), http.whole())


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("encoding", ["negotiated", "stored"])
def test_content_encoding_gives_right_rows_or_a_clear_error(
    web: WebServer, tokenizer: Any, kind: str, encoding: Any
) -> None:
    corpus(web.folder / "in", kind, [20, 13, 16], words=40)
    here = stream(web.folder / "in", kind, tokenizer, epochs=1)
    web.encoded = {"in/0*": encoding}
    config = replace(here, sources=[Source(web.address("in") + "/", text=FIELDS[kind])])
    if encoding == "negotiated" or kind.endswith("gz"):  # what is stored of a .gz is the .gz
        assert equal(take(one(config)), take(one(here)))
    else:
        with pytest.raises(StreamfeedError, match=r"gzip|encoded|compressed"):
            take(one(config))


def test_signed_urls_give_the_rows_and_appear_nowhere(
    web: WebServer, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "streamfeed")
    corpus(web.folder / "signed", KIND, [20, 13, 16], words=40)
    here = stream(web.folder / "signed", KIND, tokenizer, epochs=1)
    urls = [web.signed(f"signed/00{index}.{KIND}") for index in range(3)]
    config = replace(here, sources=[Source(urls, text=FIELDS[KIND])])
    loader = one(config)
    assert equal(take(loader), take(one(here)))
    web.script(Fault(Status(503), op="GET", times=None))
    again = one_state(config, loader.state_dict(), web)
    assert SIGNATURE not in caplog.text
    assert SIGNATURE not in str(loader.state_dict())
    assert SIGNATURE not in again


def one_state(config: StreamConfig, state: dict[str, Any], web: WebServer) -> str:
    """Return the error of a run that cannot read."""
    web.script()
    loader = Run.start(config, 1, 2, state=state).loaders[0]
    web.script(Fault(Status(503), op="GET", times=None))
    with pytest.raises(ReadError) as caught:
        take(loader)
    return f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r} {caught.value.__dict__}"
