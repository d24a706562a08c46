"""The one retry layer: attempts, waits, limits and counts, with a clock that only moves when something waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from streamfeed.stats import ReadStats
from streamfeed.storage.faults import Kind
from streamfeed.storage.retry import GaveUpError, Retrier, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECRET = "hush-hush"
POLICY = RetryPolicy(attempts=5, first_s=1.0, most_s=4.0, total_s=100.0, stall_s=1.0)


class Clock:
    def __init__(self, step: float = 0.0) -> None:
        self.now = 50.0
        self.waits: list[float] = []
        self._step = step

    def time(self) -> float:
        self.now += self._step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def error(status: int, code: str = "", retry_after: str = "") -> Exception:
    headers = {"retry-after": retry_after} if retry_after else {}
    about = {"Code": code or str(status), "Message": SECRET}
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    raised: Exception = ClientError({"Error": about, "ResponseMetadata": meta}, "Get")
    return raised


EXPIRED = error(400, "ExpiredToken")


class Store:
    """Raises what it is told in order, None being an answer."""

    def __init__(self, answers: Sequence[Exception | None]) -> None:
        self._answers = list(answers)
        self.calls = 0
        self.renewed: list[int] = []

    def ask(self) -> str:
        answer = self._answers[min(self.calls, len(self._answers) - 1)]
        self.calls += 1
        if answer is not None:
            raise answer
        return "bytes"

    def renew(self) -> None:
        self.renewed.append(self.calls)


def retrier(clock: Clock, stats: ReadStats | None = None, draw: Callable[[], float] = lambda: 1.0) -> Retrier:
    return Retrier(POLICY, stats or ReadStats(), clock=clock.time, sleep=clock.sleep, draw=draw)


def call(answers: Sequence[Exception | None], clock: Clock | None = None, stats: ReadStats | None = None) -> Store:
    store = Store(answers)
    assert retrier(clock or Clock(), stats).call(store.ask, "s3://bucket/x", store.renew) == "bytes"
    return store


@pytest.mark.parametrize("faults", range(5))
def test_up_to_the_last_attempt_a_passing_fault_changes_nothing_and_is_counted(faults: int) -> None:
    stats = ReadStats()
    store = call([error(503)] * faults + [None], stats=stats)
    assert (store.calls, stats.retries, stats.expired) == (faults + 1, faults, 0)


def test_one_fault_more_is_an_error_with_attempts_and_last_status_and_without_messages() -> None:
    store = Store([error(500), ConnectionResetError(SECRET), error(429), error(500), error(503, "SlowDown")])
    with pytest.raises(GaveUpError) as caught:
        retrier(Clock()).call(store.ask, "s3://bucket/x", store.renew)
    assert store.calls == 5
    assert (caught.value.attempts, caught.value.fault.kind) == (5, Kind.TRANSIENT)
    assert str(caught.value) == "5 attempts in 11.0 s, the last: HTTP 503 SlowDown"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None, "what the store raised may hold secrets"


@pytest.mark.parametrize("status", [400, 403, 404, 412, 501])
def test_what_does_not_pass_is_an_error_at_once(status: int) -> None:
    store, clock = Store([error(status, "Some")]), Clock()
    with pytest.raises(GaveUpError, match=f"1 attempt, the last: HTTP {status}"):
        retrier(clock).call(store.ask, "x", store.renew)
    assert (store.calls, clock.waits) == (1, [])


def test_waits_double_up_to_the_most_with_full_jitter() -> None:
    clock = Clock()
    call([error(503)] * 4 + [None], clock)
    assert clock.waits == [1.0, 2.0, 4.0, 4.0]
    clock, store = Clock(), Store([error(503)] * 4 + [None])
    retrier(clock, draw=lambda: 0.25).call(store.ask, "x", store.renew)
    assert clock.waits == [0.25, 0.5, 1.0, 1.0]


def test_retry_after_is_waited_where_it_is_longer() -> None:
    clock = Clock()
    call([error(503, retry_after="9"), error(429, retry_after="0"), error(503), None], clock)
    assert clock.waits == [9.0, 2.0, 4.0]


def test_no_attempt_begins_behind_the_total_time() -> None:
    clock, store = Clock(), Store([error(503, retry_after="40")])
    with pytest.raises(GaveUpError, match=r"3 attempts in 80\.0 s"):
        retrier(clock).call(store.ask, "x", store.renew)
    assert clock.waits == [40.0, 40.0]
    store = Store([error(503, retry_after="1000")])
    with pytest.raises(GaveUpError, match="1 attempt, the last: HTTP 503"):
        retrier(clock).call(store.ask, "x", store.renew)


def test_an_expired_credential_is_renewed_once_and_without_waiting() -> None:
    stats, clock = ReadStats(), Clock()
    store = call([EXPIRED, None], clock, stats)
    assert (store.renewed, clock.waits, stats.retries, stats.expired) == ([1], [], 1, 1)


def test_two_expired_credentials_in_a_row_are_an_error() -> None:
    store = Store([EXPIRED, EXPIRED, None])
    with pytest.raises(GaveUpError, match=r"2 attempts in .*HTTP 400 ExpiredToken"):
        retrier(Clock()).call(store.ask, "x", store.renew)
    assert store.renewed == [1]


def test_a_credential_that_expires_again_after_another_fault_is_renewed_again() -> None:
    store = call([EXPIRED, error(503), EXPIRED, None])
    assert store.renewed == [1, 3]


def test_an_interrupt_is_no_fault() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrier(Clock()).call(interrupted, "x", lambda: None)


def test_the_documented_defaults_bear_a_minute_of_throttling() -> None:
    policy = RetryPolicy()
    waits = [min(policy.most_s, policy.first_s * 2**n) for n in range(policy.attempts - 1)]
    assert 60 < sum(waits) < policy.total_s
