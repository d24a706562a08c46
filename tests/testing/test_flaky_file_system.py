"""The flaky file system: each fault as a client sees it, on the calls that the schedule says."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
import fsspec
import pytest
from botocore.exceptions import ClientError

from streamfeed.testing import (
    Changed,
    CutBody,
    Expired,
    Fault,
    FlakyFileSystem,
    Latency,
    Reset,
    Schedule,
    ShortRead,
    Stall,
    Status,
)

if TYPE_CHECKING:
    from pathlib import Path

DATA = bytes(range(200))


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(DATA)
    (tmp_path / "in" / "b.bin").write_bytes(DATA[::-1])
    return str(tmp_path / "in" / "a.bin")


def flaky(*faults: Fault, **options: Any) -> FlakyFileSystem:
    return FlakyFileSystem(Schedule(faults), **options)


def status_of(error: BaseException) -> int:
    assert isinstance(error, aiohttp.ClientResponseError)
    return error.status


def test_without_faults_it_is_the_target_and_notes_every_call(file: str) -> None:
    fs = flaky()
    folder = file.rpartition("/")[0]
    assert fs.ls(folder, detail=False) == [file, file.replace("a.bin", "b.bin")]
    assert sorted(fs.find(folder)) == fs.ls(folder, detail=False)
    assert fs.info(file)["size"] == 200
    assert fs.cat_file(file, 10, 20) == DATA[10:20]
    assert fs.cat_file(file) == DATA
    with fs.open(file) as opened:
        opened.seek(190)
        assert opened.read(20) == DATA[190:]
    calls = fs.schedule.calls()
    assert [call.op for call in calls] == ["ls", "find", "ls", "info", "cat_file", "cat_file", "open", "read"]
    assert [(call.start, call.end) for call in fs.schedule.calls("cat_file")] == [(10, 20), (None, None)]
    assert {call.effects for call in calls} == {()}


def test_a_url_with_options_gives_it_and_every_instance_is_a_new_one(file: str) -> None:
    schedule = Schedule()
    fs, path = fsspec.url_to_fs(f"flaky://{file}", schedule=schedule)
    assert (type(fs), path) == (FlakyFileSystem, file)
    assert fs.cat_file(path, 0, 3) == fs.cat_file(f"flaky://{file}", 0, 3) == DATA[:3]
    again, _ = fsspec.url_to_fs(f"flaky://{file}", schedule=schedule)
    assert again is not fs
    assert again.schedule is schedule


def test_memory_is_a_target_too() -> None:
    fs = flaky(Fault(Status(500), op="ls"), target_protocol="memory")
    fs.pipe_file("/flaky-test/x", b"hello")
    with pytest.raises(aiohttp.ClientResponseError):
        fs.ls("/flaky-test")
    (entry,) = fs.ls("/flaky-test")
    assert entry == fs.info("/flaky-test/x") | {"created": entry["created"]}
    assert fs.cat_file("flaky:///flaky-test/x", 1, 3) == b"el"


@pytest.mark.parametrize("code", [401, 403, 408, 429, 500, 502, 503, 504])
def test_a_status_is_what_the_http_client_raises_and_carries_retry_after(file: str, code: int) -> None:
    fs = flaky(Fault(Status(code, retry_after=7), op="cat_file", first=2, times=2))
    assert fs.cat_file(file, 0, 1) == b"\0"
    for _ in range(2):
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            fs.cat_file(file, 0, 1)
        assert caught.value.status == code
        assert caught.value.headers is not None
        assert caught.value.headers["retry-after"] == "7"
    assert fs.cat_file(file, 0, 1) == b"\0"
    assert [call.effects for call in fs.schedule.calls()] == [(), ("Status",), ("Status",), ()]


def test_a_missing_object_is_a_file_not_found_error(file: str) -> None:
    fs = flaky(Fault(Status(404), times=None))
    with pytest.raises(FileNotFoundError):
        fs.info(file)


@pytest.mark.parametrize(
    ("effect", "kind", "reason"),
    [
        (Status(503), OSError, "SlowDown"),
        (Status(403), PermissionError, "AccessDenied"),
        (Status(400, reason="ExpiredToken"), PermissionError, "ExpiredToken"),
        (Status(404), FileNotFoundError, "NoSuchKey"),
    ],
)
def test_in_the_style_of_s3_a_status_is_what_s3fs_raises(
    file: str, effect: Status, kind: type[Exception], reason: str
) -> None:
    fs = flaky(Fault(effect), style="s3")
    with pytest.raises(kind) as caught:
        fs.cat_file(file)
    cause = caught.value.__cause__
    assert isinstance(cause, ClientError)
    assert cause.response["Error"]["Code"] == reason
    assert cause.response["ResponseMetadata"]["HTTPStatusCode"] == effect.code


def test_resets_cut_bodies_and_short_reads(file: str) -> None:
    faults = [Fault(Reset(), first=1), Fault(CutBody(), first=2), Fault(ShortRead(keep=0.25), first=3)]
    fs = flaky(*faults)
    with pytest.raises(ConnectionResetError):
        fs.cat_file(file, 0, 100)
    with pytest.raises(aiohttp.ClientPayloadError):
        fs.cat_file(file, 0, 100)
    assert fs.cat_file(file, 0, 100) == DATA[:25]
    assert fs.cat_file(file, 0, 100) == DATA[:100]


def test_reads_of_an_opened_file_fail_too(file: str) -> None:
    fs = flaky(Fault(Status(503), op="read"))
    with fs.open(file) as opened:
        with pytest.raises(aiohttp.ClientResponseError):
            opened.read(10)
        assert opened.read(10) == DATA[:10]


@pytest.mark.parametrize("by_file", [True, False])
def test_a_stall_lasts_until_the_test_ends_it(file: str, tmp_path: Path, by_file: bool) -> None:
    event, path = threading.Event(), tmp_path / "go"
    fs = flaky(Fault(Stall(str(path) if by_file else event), op="cat_file", path="*/a.bin"))
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fs.cat_file(file)), daemon=True)
    reader.start()
    assert fs.cat_file(file.replace("a.bin", "b.bin"), 0, 1) == DATA[-1:]
    assert not got
    path.touch() if by_file else event.set()
    reader.join(10)
    assert got == [DATA]


def test_a_stall_that_nobody_ends_is_a_reset(file: str) -> None:
    fs = flaky(Fault(Stall(threading.Event(), most_s=0.01)))
    with pytest.raises(ConnectionResetError):
        fs.cat_file(file)


def test_latency_is_added_to_every_call(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("streamfeed.testing.filesystem.time.sleep", slept.append)
    fs = flaky(Fault(Latency(2.5), op="cat_file", first=2), latency_s=0.03)
    fs.info(file)
    fs.cat_file(file)
    fs.cat_file(file)
    assert slept == [0.03, 0.03, 0.03, 2.5]


@pytest.mark.parametrize("content", [None, b"another"])
def test_an_object_changes_between_listing_and_reading(file: str, content: bytes | None) -> None:
    fs = flaky(Fault(Changed(content), op="cat_file", path="*/a.bin", first=2, times=None))
    folder = file.rpartition("/")[0]
    before = {entry["name"]: entry for entry in fs.ls(folder)}
    assert fs.info(file) == before[file]
    assert fs.cat_file(file) == DATA
    assert fs.info(file)["ETag"] == before[file]["ETag"]
    new = DATA if content is None else content
    assert fs.cat_file(file) == new
    assert fs.cat_file(file, 2, 5) == new[2:5]
    after = {entry["name"]: entry for entry in fs.ls(folder)}
    assert after[file]["ETag"] != before[file]["ETag"]
    assert after[file]["size"] == len(new)
    found: Any = fs.find(folder, detail=True)
    assert found[file] == after[file] == fs.info(file)
    other = file.replace("a.bin", "b.bin")
    assert after[other] == before[other]


def test_an_expired_credential_refuses_everything_until_the_client_is_made_again(file: str) -> None:
    schedule = Schedule([Fault(Expired(403), op="cat_file", first=2)])
    fs = FlakyFileSystem(schedule)
    fs.cat_file(file)
    for call in (fs.cat_file, fs.info, fs.ls):
        with pytest.raises(aiohttp.ClientResponseError, match="ExpiredToken") as caught:
            call(file)
        assert status_of(caught.value) == 403
    assert FlakyFileSystem(schedule).cat_file(file) == DATA


def test_calls_are_counted_for_each_path_or_for_all(file: str) -> None:
    other = file.replace("a.bin", "b.bin")
    each = flaky(Fault(Reset(), op="cat_file", first=2))
    each.cat_file(file), each.cat_file(other)
    for path in (file, other):
        with pytest.raises(ConnectionResetError):
            each.cat_file(path)
    together = flaky(Fault(Reset(), op="cat_file", first=2, per_path=False))
    together.cat_file(file)
    with pytest.raises(ConnectionResetError):
        together.cat_file(other)
    assert together.cat_file(other) == DATA[::-1]


def test_a_copy_of_a_schedule_in_one_process_is_the_schedule(file: str) -> None:
    schedule = Schedule([Fault(Reset())])
    assert copy.deepcopy({"schedule": schedule})["schedule"] is schedule
    assert copy.copy(schedule) is schedule


@pytest.mark.parametrize("wrong", [{"first": 0}, {"times": 0}])
def test_calls_are_counted_from_one(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        Fault(Reset(), **wrong)


def read_in_child(fs: FlakyFileSystem, path: str, times: int) -> None:
    for _ in range(times):
        try:
            fs.cat_file(path)
        except ConnectionResetError:
            continue


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_share_a_journal_count_together(file: str, tmp_path: Path, method: str) -> None:
    schedule = Schedule([Fault(Reset(), op="cat_file", first=8, times=5)], journal=tmp_path / "journal")
    fs = FlakyFileSystem(schedule)
    fs.cat_file(file)
    context: Any = multiprocessing.get_context(method)
    children = [context.Process(target=read_in_child, args=(fs, file, 6)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0]
    calls = schedule.calls()
    assert len(calls) == 13
    assert [bool(call.effects) for call in calls] == [False] * 7 + [True] * 5 + [False]
    assert {call.pid for call in calls[1:]} == {child.pid for child in children}


def test_threads_that_share_a_schedule_count_together(file: str) -> None:
    fs = flaky(Fault(Reset(), op="cat_file", first=10, times=20))
    threads = [threading.Thread(target=read_in_child, args=(fs, file, 10)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(bool(call.effects) for call in fs.schedule.calls()) == 20


def test_a_schedule_without_a_journal_begins_anew_in_another_process(file: str) -> None:
    fs = flaky(Fault(Reset()))
    with pytest.raises(ConnectionResetError):
        fs.cat_file(file)
    again = pickle.loads(pickle.dumps(fs))
    assert again.schedule.faults == fs.schedule.faults
    assert again.schedule.calls() == []


def test_the_protocol_is_found_without_an_import() -> None:
    code = "import fsspec, sys; assert 'streamfeed' not in sys.modules; print(fsspec.filesystem('flaky').protocol)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "flaky"
