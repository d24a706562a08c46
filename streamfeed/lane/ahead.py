"""Doing the next items while the present one is used."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from streamfeed.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ahead", "AheadThread"]

T = TypeVar("T")


class _Answer(NamedTuple):
    """An item, or what was raised in its place."""

    item: object
    error: BaseException | None = None


class _Request(NamedTuple):
    items: Iterator[object]
    answers: SimpleQueue[_Answer]


class AheadThread:
    """The thread on which all lanes of a worker read and encode, one request after the other.

    Plain queues, since a future costs some twenty times as much and there is one for every run. ``stages`` are this
    thread's: where nothing is asked for, enough is encoded ahead.
    """

    def __init__(self, stages: Stages | None = None) -> None:
        self._idle = (stages or Stages()).encode.blocked
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._stopped = False
        self._thread = Thread(target=self._serve, name="read-ahead", daemon=True)
        self._thread.start()

    def ask(self, items: Iterator[object], answers: SimpleQueue[_Answer]) -> None:
        """Ask for the next of ``items``; it comes to ``answers``."""
        self._requests.put(_Request(items, answers))

    def stop(self) -> None:
        """Drop what was asked for and not begun; does not wait for what was."""
        self._stopped = True
        self._requests.put(None)

    def _serve(self) -> None:
        while (request := self._next()) is not None and not self._stopped:
            try:
                answer = _Answer(next(request.items, None))
            except BaseException as error:  # noqa: BLE001 - raised where the item is taken
                answer = _Answer(None, error)
            request.answers.put(answer)
            del request, answer  # or the last run would be held until the next is asked for

    def _next(self) -> _Request | None:
        with self._idle:
            return self._requests.get()


class Ahead(Generic[T]):
    """Draws ``depth`` items of ``items`` ahead on ``thread``, in order; an error is raised in the place of its item.

    Without a thread this is the iterator itself. ``stages`` are those of the thread that takes them.
    """

    def __init__(
        self, items: Iterator[T], thread: AheadThread | None, depth: int, stages: Stages | None = None
    ) -> None:
        self._starved = (stages or Stages()).pack.starved
        self._items = items
        self._thread = thread
        self._depth = depth
        self._asked = 0
        self._answers: SimpleQueue[_Answer] = SimpleQueue()

    def start(self) -> None:
        """Begin drawing; called early so that all lanes' first items are on their way before one is waited for."""
        while self._thread is not None and self._asked < self._depth:
            self._thread.ask(self._items, self._answers)
            self._asked += 1

    def take(self) -> T | None:
        """Return the next item, or None at the end (and ever after); the one behind it is asked for before."""
        if self._thread is None:
            return next(self._items, None)
        self.start()
        self._asked -= 1
        self.start()
        with self._starved:
            answer = self._answers.get()
        if answer.error is not None:
            raise answer.error
        return cast("T | None", answer.item)
