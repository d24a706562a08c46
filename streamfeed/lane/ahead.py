"""Doing the next items while the present one is used."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor, Future

__all__ = ["Ahead"]

T = TypeVar("T")


class Ahead(Generic[T]):
    """Draws ``depth`` items of ``items`` ahead on ``executor``, in order; an error is raised in the place of its item.

    The executor must run one task at a time (one thread): a generator cannot be advanced twice at once. Without an
    executor this is the iterator itself.
    """

    def __init__(self, items: Iterator[T], executor: Executor | None, depth: int) -> None:
        self._items = items
        self._executor = executor
        self._depth = depth
        self._coming: deque[Future[T | None]] = deque()

    def start(self) -> None:
        """Begin drawing; called early so that all lanes' first items are on their way before one is waited for."""
        while self._executor is not None and len(self._coming) < self._depth:
            self._coming.append(self._executor.submit(next, self._items, None))

    def take(self) -> T | None:
        """Return the next item, or None at the end (and ever after)."""
        if self._executor is None:
            return next(self._items, None)
        self.start()
        return self._coming.popleft().result()
