"""The one retry layer: every call to a store goes through it, and no library below retries by itself."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING, NoReturn, TypeVar

from streamfeed.config import RetryPolicy
from streamfeed.storage.faults import Fault, Kind, classify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity import RetryCallState

    from streamfeed.stats import ReadStats

__all__ = ["GaveUpError", "Retrier", "RetryPolicy"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = frozenset((Kind.TRANSIENT, Kind.SHORT))


class GaveUpError(Exception):
    """The last fault of a call that did not succeed, the attempts made and the seconds that they took."""

    def __init__(self, fault: Fault, attempts: int, seconds: float) -> None:
        super().__init__(fault, attempts, seconds)
        self.fault = fault
        self.attempts = attempts
        self.seconds = seconds

    def __str__(self) -> str:
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts in {self.seconds:.1f} s"
        return f"{times}, the last: {self.fault.text}"


class Retrier:
    """Repeats calls by a policy. Safe to use from several threads; ``clock``, ``sleep`` and ``draw`` are for tests."""

    def __init__(
        self,
        policy: RetryPolicy,
        stats: ReadStats,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] | None = None,
    ) -> None:
        self.policy = policy
        self.clock = clock
        self.sleep = sleep
        self._stats = stats
        self._draw = draw or random.Random().random  # noqa: S311 - only spreads the waits
        self._lock = threading.Lock()

    def call(self, operation: Callable[[], T], shown: str, renew: Callable[[], None]) -> T:
        """Return what ``operation`` returns, after as many repetitions as it takes and the policy allows.

        ``renew`` makes new clients after an expired credential: once, since two in a row mean that the new one is no
        better. ``shown`` says in logs what was called. Raises :class:`GaveUpError`.
        """
        ongoing = _Ongoing(self, shown, renew)
        try:
            return ongoing.run(operation)
        except _StopError as stop:
            failure = stop.failure
        raise failure  # outside of the handler: the store's own exceptions, which may hold secrets, are not chained

    def backoff(self, fault: Fault, attempt: int) -> float:
        """Return the seconds to wait after the ``attempt``-th request failed."""
        most = min(self.policy.most_s, self.policy.first_s * 2.0 ** min(attempt - 1, 60))
        return max(self._draw() * most, fault.retry_after or 0.0)

    def count(self, *, expired: bool) -> None:
        """Count a repetition."""
        with self._lock:
            self._stats.retries += 1
            self._stats.expired += expired


class _StopError(Exception):
    def __init__(self, failure: GaveUpError) -> None:
        super().__init__()
        self.failure = failure


class _Ongoing:
    """One call with its repetitions: tenacity's loop, with our clock."""

    def __init__(self, retrier: Retrier, shown: str, renew: Callable[[], None]) -> None:
        self._retrier = retrier
        self._shown = shown
        self._renew = renew
        self._began = retrier.clock()
        self._fault = Fault(Kind.FATAL, "")
        self._renewed = False  # by the attempt before

    def run(self, operation: Callable[[], T]) -> T:
        from tenacity import Retrying

        loop = Retrying(
            sleep=self._pause,
            stop=self._over,
            wait=self._wait,
            retry=self._again,
            before_sleep=self._note,
            retry_error_callback=self._give_up,
        )
        return loop(operation)

    def _again(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is None:
            return False
        if not isinstance(error, Exception):
            raise error  # Ctrl-C and the like
        self._fault = classify(error)
        expired = self._fault.kind is Kind.EXPIRED
        if (expired and self._renewed) or not (expired or self._fault.kind in _PASSING):
            self._give_up(state)
        self._renewed = expired
        return True

    def _wait(self, state: RetryCallState) -> float:
        return 0.0 if self._renewed else self._retrier.backoff(self._fault, state.attempt_number)

    def _over(self, state: RetryCallState) -> bool:
        policy, spent = self._retrier.policy, self._retrier.clock() - self._began
        return state.attempt_number >= policy.attempts or spent + state.upcoming_sleep > policy.total_s

    def _note(self, state: RetryCallState) -> None:
        if self._renewed:
            self._renew()
        self._retrier.count(expired=self._renewed)
        number, wait = state.attempt_number, state.upcoming_sleep
        logger.debug("%s: attempt %d: %s; again in %.1f s", self._shown, number, self._fault.text, wait)

    def _pause(self, seconds: float) -> None:
        if seconds:
            self._retrier.sleep(seconds)

    def _give_up(self, state: RetryCallState) -> NoReturn:
        seconds = self._retrier.clock() - self._began
        raise _StopError(GaveUpError(self._fault, state.attempt_number, seconds))
