"""Ranks that are threads of this process: they agree as the ranks of a job do, without the seconds of its processes."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from streamfeed.topology import Ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
SECONDS = 30.0
"""How long a rank waits for the others: a hang is a failure."""


class Table:
    """Where threads leave what they say in their ``n``-th collective, and take what all have said."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._said: dict[int, dict[int, Any]] = defaultdict(dict)
        self._changed = threading.Condition()

    def put(self, turn: int, rank: int, value: Any) -> None:
        with self._changed:
            self._said[turn][rank] = value
            self._changed.notify_all()

    def complete(self, turn: int) -> bool:
        with self._changed:
            return len(self._said[turn]) == self._size

    def all(self, turn: int) -> list[Any]:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._said[turn]) == self._size, SECONDS):
                raise TimeoutError(f"collective {turn}: only ranks {sorted(self._said[turn])} of {self._size} came")
            return [self._said[turn][rank] for rank in range(self._size)]


class Tables:
    """The tables of all groups of a job; the ``n``-th group that a rank makes is that of the others' ``n``-th."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tables: dict[int, Table] = {}
        self._lock = threading.Lock()

    def get(self, number: int) -> Table:
        with self._lock:
            return self._tables.setdefault(number, Table(self._size))


class Answer:
    def __init__(self, table: Table, turn: int) -> None:
        self._table, self._turn = table, turn

    def arrived(self) -> bool:
        return self._table.complete(self._turn)

    def answer(self) -> list[int]:
        return [max(values) for values in zip(*self._table.all(self._turn), strict=True)]


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """:class:`Ranks` whose group is a table."""

    tables: Any = None
    mine: list[int] = field(default_factory=lambda: [0])  # groups made, the same list in all groups of a rank
    table: Any = None
    turn: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, number: int, tables: Tables, size: int) -> ThreadRanks:
        return cls(number, size, group=True, tables=tables, table=tables.get(0))  # type: ignore[arg-type]

    def another(self) -> Ranks:
        self.mine[0] += 1
        return ThreadRanks(
            self.number, self.size, self.group, tables=self.tables, mine=self.mine, table=self.tables.get(self.mine[0])
        )

    def _say(self, value: Any) -> int:
        turn = self.turn[0]
        self.turn[0] += 1
        self.table.put(turn, self.number, value)
        return turn

    def once(self, make: Callable[[], T]) -> T:
        made: T = self.gather(make() if self.number == 0 else None)[0]  # type: ignore[assignment]
        return made

    def gather(self, value: T) -> list[T]:
        return list(self.table.all(self._say(value)))

    def sum(self, values: Sequence[int]) -> list[int]:
        return [sum(some) for some in zip(*self.gather(list(values)), strict=True)]

    def ask_largest(self, values: Sequence[int]) -> Any:
        return Answer(self.table, self._say(list(values)))

    @property
    def asked(self) -> int:
        """How many collectives of this group the rank has begun."""
        return self.turn[0]


def on_ranks(size: int, work: Callable[[ThreadRanks], T]) -> list[T]:
    """Run ``work`` on every rank at once; return what each returned. Raises what the first of them raised."""
    tables = Tables(size)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks.of(rank, tables, size))
        except BaseException as error:  # noqa: BLE001 - raised below
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
        assert not thread.is_alive(), "a rank hangs"
    for error in errors:
        if error is not None:
            raise error
    return results
