"""Faults of a store: what is over in time changes no row, what is not is an error that says what happened."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.config import RetryPolicy
from streamfeed.errors import ReadError, SourceError
from streamfeed.storage.retry import Retrier
from streamfeed.testing import (
    Changed,
    CutBody,
    Effect,
    Expired,
    Fault,
    Latency,
    Reset,
    Schedule,
    ShortRead,
    Stall,
    Status,
)
from tests.corpora import FIELDS
from tests.streams import Batches, Run, corpus, equal, stream, take, take_into

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")

ATTEMPTS = RetryPolicy().attempts
KIND = "jsonl"
PASSING: list[Effect] = [
    *[Status(code) for code in (408, 429, 500, 502, 503, 504)],
    Status(503, retry_after=3),
    Reset(),
    CutBody(),
    ShortRead(),
    ShortRead(0.0),
    Latency(0.001),
]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries wait no time; these are the seconds that they would have."""
    waits: list[float] = []
    kept = Retrier.__init__.__kwdefaults__
    assert kept is not None
    monkeypatch.setitem(kept, "sleep", waits.append)
    return waits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus(tmp_path / "corpus", KIND, [20, 13, 16], words=40)
    return tmp_path / "corpus"


@pytest.fixture
def whole(folder: Path, tokenizer: Any) -> Batches:
    """What the local folder gives."""
    return take(one(stream(folder, KIND, tokenizer, epochs=1)))


def one(config: StreamConfig, state: dict[str, Any] | None = None) -> Any:
    return Run.start(config, 1, 2, state=state).loaders[0]


def flaky(folder: Path, tokenizer: Any, *faults: Fault, style: str = "http") -> tuple[StreamConfig, Schedule]:
    """A finite pass over ``folder`` through the flaky file system, and its schedule."""
    schedule = Schedule(faults)
    options = {"schedule": schedule, "style": style}
    source = Source(f"flaky://{folder}", text=FIELDS[KIND], storage_options=options)
    return replace(stream(folder, KIND, tokenizer, epochs=1), sources=[source]), schedule


def reads(folder: Path, tokenizer: Any) -> int:
    """Return how many reads a pass without faults takes."""
    config, schedule = flaky(folder, tokenizer)
    take(one(config))
    return len(schedule.calls("cat_file"))


@pytest.mark.parametrize("effect", PASSING, ids=repr)
def test_a_fault_of_a_read_that_is_over_in_time_changes_no_row(
    folder: Path, tokenizer: Any, whole: Batches, slept: list[float], effect: Effect
) -> None:
    count = reads(folder, tokenizer)
    assert count >= 3
    for first in (1, (count + 1) // 2, count):
        for times in (1, ATTEMPTS // 2, ATTEMPTS - 1):
            fault = Fault(effect, op="cat_file", first=first, times=times, per_path=False)
            config, schedule = flaky(folder, tokenizer, fault)
            loader = one(config)
            assert equal(take(loader), whole), (first, times)
            if not isinstance(effect, Latency):
                assert sum(bool(call.effects) for call in schedule.calls()) == times
                assert loader.report().retries == times
    assert any(slept) or isinstance(effect, Latency)


@pytest.mark.parametrize("style", ["http", "s3"])
@pytest.mark.parametrize("effect", [Status(429), Status(500), Status(503, retry_after=3), Reset()], ids=repr)
@pytest.mark.parametrize("times", [1, ATTEMPTS // 2, ATTEMPTS - 1])
def test_a_fault_of_the_listing_that_is_over_in_time_changes_nothing(
    folder: Path, tokenizer: Any, whole: Batches, slept: list[float], effect: Effect, times: int, style: str
) -> None:
    faults = [Fault(effect, op=op, times=times) for op in ("find", "info", "ls")]
    config, schedule = flaky(folder, tokenizer, *faults, style=style)
    assert equal(take(one(config)), whole)
    assert len([call for call in schedule.calls() if call.effects]) >= times


def test_what_a_store_asks_to_wait_is_waited(folder: Path, tokenizer: Any, whole: Batches, slept: list[float]) -> None:
    faults = [Fault(Status(429, retry_after=7), op=op, per_path=False) for op in ("find", "cat_file")]
    config, _ = flaky(folder, tokenizer, *faults)
    assert equal(take(one(config)), whole)
    assert len([seconds for seconds in slept if seconds >= 7]) == 2


@pytest.mark.parametrize(("effect", "says"), [(Status(503), "503"), (Status(429), "429"), (Reset(), "reset")], ids=repr)
def test_a_read_that_keeps_failing_is_an_error_with_url_attempts_and_last_status(
    folder: Path, tokenizer: Any, whole: Batches, slept: list[float], effect: Effect, says: str
) -> None:
    config, schedule = flaky(folder, tokenizer, Fault(effect, op="cat_file", path="*/001.*", times=None))
    loader = one(config)
    found: Batches = []
    with pytest.raises(ReadError) as caught:
        take_into(found, loader)
    message = str(caught.value).lower()
    assert f"flaky://{folder}/001.jsonl".lower() in message
    assert f"{ATTEMPTS} attempts" in message
    assert says in message
    assert sum(bool(call.effects) for call in schedule.calls()) % ATTEMPTS == 0
    assert equal(found, whole[: len(found)])
    healed, _ = flaky(folder, tokenizer)
    assert equal(take(one(healed, loader.state_dict())), whole[len(found) :])


def test_a_policy_says_how_often_a_read_is_repeated(folder: Path, tokenizer: Any, slept: list[float]) -> None:
    config, schedule = flaky(folder, tokenizer, Fault(Status(503), op="cat_file", path="*/001.*", times=None))
    source = replace(config.sources[0], retry=RetryPolicy(attempts=3))
    with pytest.raises(ReadError, match="3 attempts"):
        take(one(replace(config, sources=[source])))
    assert sum(bool(call.effects) for call in schedule.calls()) % 3 == 0


@pytest.mark.parametrize("effect", [Status(503), Status(429), Status(500), Reset()], ids=repr)
@pytest.mark.parametrize("style", ["http", "s3"])
@pytest.mark.parametrize("pattern", ["", "/*.jsonl", "/00{0,1,2}.jsonl", "/001.jsonl"])
def test_a_store_that_does_not_answer_is_never_taken_for_missing_or_empty(
    folder: Path, tokenizer: Any, slept: list[float], effect: Effect, style: str, pattern: str
) -> None:
    faults = [Fault(effect, op=op, times=None) for op in ("find", "info", "ls")]
    config, _ = flaky(folder, tokenizer, *faults, style=style)
    source = replace(config.sources[0], uri=f"flaky://{folder}{pattern}")
    with pytest.raises(SourceError) as caught:
        one(replace(config, sources=[source]))
    message = str(caught.value)
    assert f"{ATTEMPTS} attempts" in message
    assert f"flaky://{folder}" in message
    assert "no such" not in message
    assert "no file" not in message


def test_what_is_really_missing_is_said_at_once(folder: Path, tokenizer: Any, slept: list[float]) -> None:
    config, _ = flaky(folder, tokenizer)
    for name in ("nothing.jsonl", "nothing/*.jsonl", "{nothing,001}.jsonl"):
        with pytest.raises(SourceError, match=r"no such|no file"):
            one(replace(config, sources=[replace(config.sources[0], uri=f"flaky://{folder}/{name}")]))
    assert not slept


@pytest.mark.parametrize(("style", "code"), [("http", 401), ("s3", 400), ("s3", 403)])
def test_an_expired_credential_makes_a_new_client_and_changes_no_row(
    folder: Path, tokenizer: Any, whole: Batches, slept: list[float], style: str, code: int
) -> None:
    count = reads(folder, tokenizer)
    for op, first in [("find", 1), ("cat_file", 1), ("cat_file", (count + 1) // 2), ("cat_file", count)]:
        fault = Fault(Expired(code), op=op, first=first, per_path=False)
        config, _ = flaky(folder, tokenizer, fault, style=style)
        assert equal(take(one(config)), whole), (op, first)
    assert not any(slept)


def test_a_credential_that_expires_again_and_again_is_renewed_each_time(
    folder: Path, tokenizer: Any, whole: Batches, slept: list[float]
) -> None:
    faults = [Fault(Expired(), op="cat_file", first=first, per_path=False) for first in (1, 3, 5)]
    config, _ = flaky(folder, tokenizer, *faults)
    assert equal(take(one(config)), whole)


@pytest.mark.parametrize("op", ["find", "cat_file"])
def test_two_expired_credentials_in_a_row_are_an_error(
    folder: Path, tokenizer: Any, slept: list[float], op: str
) -> None:
    config, schedule = flaky(folder, tokenizer, Fault(Expired(), op=op, times=None))
    with pytest.raises((ReadError, SourceError), match=r"401|xpired|credential"):
        take(one(config))
    first = next(call.path for call in schedule.calls(op))
    assert sum(call.path == first for call in schedule.calls(op)) == 2


def test_a_read_that_stalls_is_given_up_and_repeated(
    folder: Path, tokenizer: Any, whole: Batches, slept: list[float]
) -> None:
    never = threading.Event()
    count = reads(folder, tokenizer)
    for first in (1, (count + 1) // 2, count):
        config, schedule = flaky(folder, tokenizer, Fault(Stall(never), op="cat_file", first=first, per_path=False))
        config = replace(config, sources=[replace(config.sources[0], retry=RetryPolicy(stall_s=0.1))])
        assert equal(take(one(config)), whole), first
        assert sum(bool(call.effects) for call in schedule.calls()) == 1
    never.set()


@pytest.mark.parametrize("content", [None, b'{"text": "another"}\n'], ids=["version", "size"])
def test_a_shard_that_changed_since_it_was_listed_is_an_error(
    folder: Path, tokenizer: Any, slept: list[float], content: bytes | None
) -> None:
    config, schedule = flaky(folder, tokenizer)
    take(one(config))
    count = sum(call.path.endswith("001.jsonl") for call in schedule.calls("cat_file"))
    for first in {1, (count + 1) // 2, count}:
        fault = Fault(Changed(content), op="cat_file", path="*/001.jsonl", first=first, times=None)
        config, _ = flaky(folder, tokenizer, fault)
        with pytest.raises(ReadError, match=r"001\.jsonl.*when the run planned|listed"):
            take(one(config))


def test_a_shard_that_was_removed_since_it_was_listed_is_an_error(
    folder: Path, tokenizer: Any, slept: list[float]
) -> None:
    faults = [Fault(Status(404), op=op, path="*/001.jsonl", times=None) for op in ("cat_file", "info")]
    config, _ = flaky(folder, tokenizer, *faults)
    with pytest.raises(ReadError, match=r"001\.jsonl.*gone"):
        take(one(config))
    assert not slept


def test_a_refused_read_is_an_error_at_once(folder: Path, tokenizer: Any, slept: list[float]) -> None:
    config, _ = flaky(folder, tokenizer, Fault(Status(403), op="cat_file", times=None), style="s3")
    with pytest.raises(ReadError, match="credentials"):
        take(one(config))
    assert not slept


def test_one_listing_and_no_look_at_single_files_plans_a_folder(folder: Path, tokenizer: Any) -> None:
    config, schedule = flaky(folder, tokenizer)
    one(config)
    assert len(schedule.calls("find")) == 1
    assert len(schedule.calls("ls")) == 0
    assert len(schedule.calls("info")) <= 1
