"""A store of remote files means what a local folder means, gives its bytes, and notices what is not what was listed."""

from __future__ import annotations

import io
import logging
import pickle
import re
import zipfile
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from streamfeed import RetryPolicy, Source
from streamfeed.errors import ConfigError, ReadError, SourceError
from streamfeed.stats import ReadStats
from streamfeed.storage.retry import Retrier
from streamfeed.storage.store import Store
from streamfeed.testing import Fault, Schedule, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = {
    "a/x-0.jsonl": 3, "a/x-1.jsonl": 4, "a/x-2.jsonl": 5, "b/deep/x-3.jsonl": 6, "top.parquet": 7,
    "_SUCCESS": 0, ".hidden.jsonl": 1, "a/.part.crc": 1, "a/x-0.jsonl.crc": 1, "README.md": 9, "LICENSE": 9,
    "index.json": 9, "manifest.json": 9, "shard.tar.idx": 9, "_logs/deep/x.jsonl": 9, ".git/config": 9,
}  # fmt: skip
ODD = ["a b.jsonl", "a%20b.jsonl", "a#b.jsonl", "a?b.jsonl", "a[1].jsonl", "a+b.jsonl", "a=b.jsonl", "é.jsonl", "%41"]


@pytest.fixture
def memory() -> Iterator[Any]:
    """An empty ``memory://``."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()


@pytest.fixture(params=["memory://corpus", "walked://corpus", "simplecache::memory://corpus"])
def both(request: pytest.FixtureRequest, memory: Any, tmp_path: Path) -> tuple[str, Path]:
    """The same files in a store and in a local folder."""
    for name, size in FILES.items():
        memory.pipe_file(f"/corpus/{name}", b"x" * size)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    return request.param, tmp_path


class WalkedFileSystem(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
    """A store without a flat listing: folders are listed one by one."""

    protocol = "walked"
    find = fsspec.AbstractFileSystem.find

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("walked://", "memory://")))


fsspec.register_implementation("walked", WalkedFileSystem)


@pytest.mark.parametrize(
    "pattern",
    [
        "", "/", "/a/*.jsonl", "/a/x-[01].jsonl", "/a/x-?.jsonl", "/**/*.jsonl", "/*/deep/*", "/b/**", "/b/*",
        "/**/**/x-3*", "/a/x-{2..0}.jsonl", "/{b,a}/**/*.jsonl", "/{b,a}", "/.hid*", "/README.md", "/a/x-1.jsonl",
        "/*", "/**", "/_logs/**", "/{a/x-1.jsonl,top.parquet}",
    ],
)  # fmt: skip
def test_a_uri_means_in_a_store_what_it_means_in_a_folder(both: tuple[str, Path], pattern: str) -> None:
    remote, local = Store().list([both[0] + pattern]), Store().list([str(both[1]) + pattern])
    assert (remote.names, remote.sizes, remote.ignored) == (local.names, local.sizes, local.ignored)
    assert all(remote.versions)
    assert remote.urls == [f"{both[0]}/{url.removeprefix(str(both[1]) + '/')}" for url in local.urls]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("/nothing.jsonl", "no such file or folder"),
        ("/nothing", "no such file or folder"),
        ("/a/*.parquet", "matches no file"),
        ("/*.md", "only hidden or marker files (1 passed over)"),
        ("/*{_SUCCESS,.idx}", "passed over"),
        ("/a/x-{0..5}.jsonl", "x-3.jsonl, and there is no such file"),
        ("/a/x-{0.jsonl", "unbalanced"),
    ],
)
def test_what_means_nothing_is_an_error_that_says_so(both: tuple[str, Path], pattern: str, message: str) -> None:
    for base in map(str, both):
        with pytest.raises(SourceError, match=re.escape(message)):
            Store().list([base + pattern])


def test_files_named_one_by_one_are_named_below_what_they_share_and_twice_is_an_error(both: tuple[str, Path]) -> None:
    names = ["a/x-1.jsonl", "b/deep/x-3.jsonl", "_SUCCESS"]
    for base in map(str, both):
        assert Store().list([f"{base}/{name}" for name in names]).names == names
    with pytest.raises(SourceError, match="meant twice"):
        Store().list([f"{both[0]}/a", f"{both[0]}/a/x-1.jsonl"])


def test_local_and_remote_files_mix_in_one_source(both: tuple[str, Path]) -> None:
    listing = Store().list([f"{both[0]}/a", str(both[1] / "b")])
    assert listing.names == ["x-0.jsonl", "x-1.jsonl", "x-2.jsonl", "deep/x-3.jsonl"]


@pytest.mark.parametrize("scheme", ["memory", "walked"])
@pytest.mark.parametrize("name", ODD)
def test_names_with_odd_characters_are_listed_named_globbed_and_read(memory: Any, scheme: str, name: str) -> None:
    for other in ODD:
        memory.pipe_file(f"/odd/{other}", other.encode())
    url = f"{scheme}://odd/{name}"
    everything = Store().list([f"{scheme}://odd"])
    assert sorted(everything.names) == sorted(ODD)
    for listing in (everything, Store().list([url]), Store().list([f"{scheme}://odd/*"])):
        at = listing.urls.index(url)
        file = Store().file(url, listing.sizes[at], listing.versions[at])
        with file.open() as raw:
            assert raw.read(100) == name.encode()
        file.confirm()


def test_files_inside_an_archive_in_a_store_are_listed_and_read(memory: Any) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("d/a.jsonl", "one")
        archive.writestr("b.jsonl", "two")
    memory.pipe_file("/z/all.zip", packed.getvalue())
    store = Store()
    listing = store.list(["zip://**::memory://z/all.zip"])
    assert listing.names == ["b.jsonl", "d/a.jsonl"]
    for url, size, version, data in zip(listing.urls, listing.sizes, listing.versions, [b"two", b"one"], strict=True):
        with store.file(url, size, version).open() as raw:
            assert raw.read(10) == data


def planned(memory: Any, data: bytes = b"0123456789") -> Any:
    memory.pipe_file("/c/x.jsonl", data)
    store = Store()
    listing = store.list(["memory://c"])
    return store.file(listing.urls[0], listing.sizes[0], listing.versions[0])


def test_reads_and_bytes_are_counted(memory: Any) -> None:
    file = planned(memory)
    with file.open() as raw:
        assert raw.read_at(2, 3) == b"234"
        assert raw.read(100) == b"0123456789"
    assert (file.stats.opens, file.stats.reads, file.stats.bytes, file.stats.retries) == (1, 2, 13, 0)


@pytest.mark.parametrize("data", [b"abcdefghij", b"another size"])
def test_a_file_overwritten_since_it_was_listed_is_an_error_of_what_was_and_is(memory: Any, data: bytes) -> None:
    file = planned(memory)
    with file.open():
        memory.pipe_file("/c/x.jsonl", data)
        with pytest.raises(ReadError, match=r"now and (had|was) .* when the run planned"):
            file.confirm()
    with pytest.raises(ReadError, match="when the run planned") as caught:
        file.open()
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_a_file_removed_since_it_was_listed_is_an_error(memory: Any) -> None:
    file = planned(memory)
    memory.rm("/c/x.jsonl")
    for ask in (file.open, file.confirm):
        with pytest.raises(ReadError, match=r"memory://c/x\.jsonl: was listed with 10 bytes and is gone now"):
            ask()


class LeakyFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Fails always, and says all that it knows."""

    protocol = "leaky"

    def __init__(self, secret: str = "", error: type[Exception] = OSError, **options: Any) -> None:
        super().__init__(**options)
        self.secret = secret
        self.error = error

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        raise self.error(f"{path} {self.secret}") from ValueError(self.secret)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        raise self.error(f"{path} {self.secret}") from ValueError(self.secret)


fsspec.register_implementation("leaky", LeakyFileSystem)


@pytest.mark.parametrize("error", [OSError, ConnectionResetError, PermissionError, TypeError])
@pytest.mark.parametrize("uri", ["leaky://me:pass1@host/x?sig=pass2", "leaky://me:pass1@host/*?sig=pass2"])
def test_secrets_are_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture, error: type[Exception], uri: str) -> None:
    caplog.set_level(logging.DEBUG)
    stats = ReadStats()
    retrier = Retrier(RetryPolicy(attempts=2), stats, sleep=lambda _: None)
    store = Store({"secret": "pass3", "error": error}, stats, retrier=retrier)
    errors: list[BaseException] = []
    for ask in (lambda: store.list([uri]), lambda: store.file(uri, 3, "v").open()):
        with pytest.raises((SourceError, ReadError)) as caught:
            ask()
        errors.append(caught.value)
    for one in errors:
        chain: BaseException | None = one
        while chain is not None:
            assert not re.search("pass[123]", f"{chain} {chain!r} {chain.__dict__}")
            chain = chain.__cause__ or chain.__context__
    assert not re.search("pass[123]", caplog.text)
    assert not re.search("pass[123]", f"{store.file(uri, 3)!r}")


def test_a_scheme_that_nobody_knows_is_an_error_that_names_it() -> None:
    with pytest.raises(SourceError, match="nowhere"):
        Store().list(["nowhere://x/y"])


def test_a_sources_own_retry_policy_is_the_one_that_is_obeyed(tmp_path: Path) -> None:
    policy = RetryPolicy(attempts=3, first_s=0.001, most_s=0.001)
    schedule = Schedule([Fault(Status(503), times=99)])
    source = Source(f"flaky://{tmp_path}", storage_options={"schedule": schedule}, retry=policy)
    with pytest.raises(SourceError, match="3 attempts"):
        Store(source.storage_options, policy=source.retry).list(source.uris)
    assert len(schedule.calls()) == 3


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"total_s": 0.0}, {"stall_s": float("inf")}], ids=str)
def test_a_policy_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RetryPolicy(**wrong)
