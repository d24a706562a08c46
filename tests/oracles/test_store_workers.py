"""Real workers on a store: no hang however they start, the rows of none, one listing, faults counted together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamLoader
from streamfeed.testing import Fault, Reset, Schedule, Status
from tests.corpora import FIELDS
from tests.remotes import Shelf
from tests.streams import CACHE, corpus, equal, stream, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfeed import StreamConfig
    from tests.servers.faulty_handler import FaultyServer
    from tests.servers.s3_proxy import S3Proxy
    from tests.servers.seaweed import Seaweed

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]  # the S3 server's start counts too

METHODS = ("fork", "forkserver", "spawn")


@pytest.fixture(scope="module")
def shelf(seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path_factory.mktemp("shelf"), seaweed.bucket("workers"))
    yield shelf
    shelf.web.close()


@pytest.fixture
def load() -> Iterator[Callable[..., StreamLoader]]:
    loaders: list[StreamLoader] = []

    def make(config: StreamConfig, workers: int = 0, batch_size: int = 4, **options: Any) -> StreamLoader:
        loaders.append(StreamLoader(config, batch_size, num_workers=workers, cache_dir=CACHE, **options))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("method", METHODS)
def test_workers_read_stores_that_the_trainer_has_listed_and_read(
    shelf: Shelf, tokenizer: Any, load: Callable[..., StreamLoader], method: str
) -> None:
    """Both stores in one stream: the trainer has live connections, and fsspec's thread, when the workers start."""
    one, other = shelf.corpus("parquet", [20, 13], words=40), shelf.corpus("jsonl.zst", [16, 18], words=40)
    config = replace(one.stream("s3", tokenizer, lanes=6), sources=[one.source("s3"), other.source("http")])
    reference = take(load(config), 12)
    loader = load(config, 2, start_method=method)
    found = take(loader, 7)
    state = loader.state_dict()
    loader.close()
    assert equal(found, reference[:7])
    again = load(config, 3, start_method=method)
    again.load_state_dict(state)
    assert equal(take(again, 5), reference[7:])


def test_workers_ask_for_no_listing(
    shelf: Shelf, s3_proxy: S3Proxy, tokenizer: Any, load: Callable[..., StreamLoader]
) -> None:
    shelved = shelf.corpus("jsonl.zst", [20, 13, 16], words=40)
    through = replace(shelved.source("s3"), storage_options=s3_proxy.options)
    config = shelved.stream("http", tokenizer, lanes=6)
    for server, source in [(shelf.web, shelved.source("http")), (s3_proxy, through)]:
        server.script()
        loader = load(replace(config, sources=[source]), 3)
        planned = asked_of(server)
        assert sum("max-keys=1&" not in query for query in planned["LIST"]) == 1  # the other asks what is there
        assert sum(map(len, planned.values())) <= 3
        take(loader, 10)
        loader.close()
        assert server.count("GET") > 0
        assert asked_of(server) == planned


def asked_of(server: FaultyServer) -> dict[str, list[str]]:
    """Return the queries of what is no read."""
    return {op: [asked.query for asked in server.log if asked.op == op] for op in ("LIST", "HEAD")}


def test_faults_that_workers_meet_change_no_row(
    tmp_path: Path, tokenizer: Any, load: Callable[..., StreamLoader]
) -> None:
    corpus(tmp_path / "corpus", "jsonl", [20, 13, 16], words=40)
    here = stream(tmp_path / "corpus", "jsonl", tokenizer, lanes=6)
    faults = [
        Fault(Status(503), op="cat_file", first=2, times=2),
        Fault(Reset(), op="cat_file", first=5, times=1),
        Fault(Status(429), op="find", times=1),
    ]
    schedule = Schedule(faults, journal=tmp_path / "journal")
    source = Source(f"flaky://{tmp_path / 'corpus'}", text=FIELDS["jsonl"], storage_options={"schedule": schedule})
    loader = load(replace(here, sources=[source]), 2)
    assert equal(take(loader, 20), take(load(here), 20))
    calls = schedule.calls()
    assert len({call.pid for call in calls if call.op == "cat_file"}) == 2
    assert len({call.pid for call in calls if call.op == "find"}) == 1
    assert sum(bool(call.effects) for call in calls) >= 4
    assert loader.report().retries >= 4
