"""Which of the calls so far, and of those to come, have which faults."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from streamfeed.testing.faults import Changed, Effect, Fault
from streamfeed.testing.journal import Call, FileJournal, Journal, MemoryJournal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Schedule"]


class Schedule:
    """Faults in order, and the calls made so far, from which it follows which fault is next.

    With ``journal`` (a path) calls are counted over all processes that hold a copy of this schedule; without, in this
    process alone (a copy that is sent to another one begins with no calls). Copies within a process are the schedule
    itself: file systems may be made anew, and the counting goes on.
    """

    def __init__(self, faults: Iterable[Fault] = (), journal: str | Path | None = None) -> None:
        self.faults = tuple(faults)
        self._path = None if journal is None else os.fspath(journal)
        self._state = _State(self._path)

    def note(self, op: str, path: str, start: int | None = None, end: int | None = None) -> list[Effect]:
        """Note a call; return the effects that it has, in the order of the faults."""
        state = self._now()
        with state.journal.locked():
            state.catch_up(self.faults)
            effects = [
                fault.effect
                for index, fault in enumerate(self.faults)
                if fault.matches(op, path) and fault.hits(state.counts[_key(fault, index, path)] + 1)
            ]
            names = tuple(type(effect).__name__ for effect in effects)
            state.journal.write(Call(op, path, start, end, os.getpid(), names))
        return effects

    def changed(self, path: str) -> Changed | None:
        """Return how the object at ``path`` has changed so far, for a listing to show it."""
        state = self._now()
        with state.journal.locked():
            state.catch_up(self.faults)
            for index, fault in enumerate(self.faults):
                if isinstance(fault.effect, Changed) and fault.hits(state.counts[_key(fault, index, path)]):
                    return fault.effect
        return None

    def calls(self, op: str | None = None) -> list[Call]:
        """Return the calls noted so far, in order: all, or those of one operation."""
        return [call for call in self._now().journal.calls() if op is None or call.op == op]

    def _now(self) -> _State:
        """Return the state of this process: what a fork copied may be half of an update, so it is made again."""
        if self._state.pid != os.getpid():
            self._state = _State(self._path)
        return self._state

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.faults, self._path)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class _State:
    """What one process knows of the calls so far."""

    def __init__(self, path: str | None) -> None:
        self.pid = os.getpid()
        self.journal: Journal = MemoryJournal() if path is None else FileJournal(path)
        self.counts: Counter[tuple[int, str]] = Counter()

    def catch_up(self, faults: tuple[Fault, ...]) -> None:
        """Count the calls that were noted since the last time."""
        for call in self.journal.news():
            for index, fault in enumerate(faults):
                if fault.matches(call.op, call.path):
                    self.counts[_key(fault, index, call.path)] += 1


def _key(fault: Fault, index: int, path: str) -> tuple[int, str]:
    return index, path if fault.per_path else ""
