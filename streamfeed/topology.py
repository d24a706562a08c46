"""Who we are among the ranks, and how they agree. The one place that reads torchrun's environment and process groups.

What ranks tell each other (a listing, a state, where a pass ends) goes over gloo groups of their own: on the CPU, apart
from the collectives of training, so that neither waits for the other's turn.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streamfeed.dataset.state import merge_states
from streamfeed.errors import ConfigError, RankError, StreamfeedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

__all__ = ["Asked", "Ranks", "cores_of_rank", "ranks_here"]

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ranks:
    """Data-parallel rank ``number`` of ``size``, and the gloo group in which they agree, if there is one.

    Without a group every rank goes on by itself. With one all methods are collectives: every rank calls them, in the
    same order. They raise :class:`~streamfeed.errors.RankError` where another rank is gone.
    """

    number: int
    size: int
    group: ProcessGroup | None = None

    @classmethod
    def find(
        cls,
        rank: int | None = None,
        world_size: int | None = None,
        group: ProcessGroup | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Return who we are; a collective where a process group of several ranks is up.

        ``group`` wins: the data-parallel one, where that is not the default one; it is used itself if its backend is
        gloo. Else the arguments win, else the default process group or torchrun's ``RANK`` and ``WORLD_SIZE`` say;
        alone it is rank 0 of 1. A default group of another size is none of the data-parallel ranks.
        Raises :class:`ConfigError` where only one argument is given, where the environment has a ``WORLD_SIZE`` and no
        usable ``RANK``, and where what is given disagrees with a group or the group with the environment.
        """
        if (rank is None) != (world_size is None):
            raise ConfigError("give both rank and world_size, or neither")
        given = None if rank is None or world_size is None else (rank, world_size)
        if group is not None:
            return cls(*_of_group(group, given), _gloo(group))
        stated = _stated(os.environ if environment is None else environment)
        found = _of_default_group()
        if given is None and found is not None and stated is not None and stated != found:
            raise ConfigError(
                f"the process group says rank {found[0]} of {found[1]}, the environment rank {stated[0]} of "
                f"{stated[1]}; pass rank and world_size of the data-parallel group"
            )
        number, size = given or found or stated or (0, 1)
        together = found is not None and found[1] == size > 1
        if given is None and found is None and size > 1:
            _log.warning(
                "WORLD_SIZE is %d and no process group is up: every rank lists by itself, holds the states of its own "
                "lanes, and ends finite passes alone; make a loader behind init_process_group()",
                size,
            )
        return cls(number, size, _gloo(None) if together else None)

    def another(self) -> Ranks:
        """Return the same ranks with a gloo group of their own; a collective."""
        return self if self.group is None else Ranks(self.number, self.size, _new_group(self.group))

    def once(self, make: Callable[[], T]) -> T:
        """Return what ``make`` makes, made by the first rank for all; what it raises is raised by all."""
        if self.group is None:
            return make()
        distributed, first = _distributed(), _first(self.group)
        box: list[Any] = [None, None]
        if self.number == 0:
            try:
                box = [make(), None]
            except Exception as error:  # noqa: BLE001 - raised again once the others know
                with _gone("rank 0 failed"):
                    distributed.broadcast_object_list([None, _portable(error, 0)], src=first, group=self.group)
                raise _told(error) from error.__cause__
        with _gone("waiting for what rank 0 lists"):
            distributed.broadcast_object_list(box, src=first, group=self.group)
        made, failure = box
        if failure is not None:
            raise _told(failure)
        return made  # type: ignore[no-any-return]

    def together(self, make: Callable[[], T]) -> T:
        """Return what ``make`` makes on this rank, once it has worked on all; ``make`` holds no collective.

        What one rank raises, all raise: it itself as it is, the others as ours or in words, with the rank's number.
        """
        if self.group is None:
            return make()
        failure: Exception | None = None
        try:
            made = make()
        except Exception as error:  # noqa: BLE001 - raised again below, once the others know
            failure = error
        said = self.gather(None if failure is None else _portable(failure, self.number))
        if failure is not None:
            raise _told(failure)
        for other in said:
            if other is not None:
                raise _told(other)
        return made

    def gather(self, value: T) -> list[T]:
        """Return the value of every rank, in their order; values are pickled."""
        if self.group is None:
            return [value]
        parts: list[Any] = [None] * self.size
        with _gone("gathering from all ranks"):
            _distributed().all_gather_object(parts, value, group=self.group)
        return parts

    def join_states(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state of all ranks; without a group ``state``, which holds this rank's lanes."""
        return state if self.group is None else merge_states(self.gather(state))

    def sum(self, values: Sequence[int]) -> list[int]:
        """Return ``values`` summed over the ranks, number by number (int64)."""
        if self.group is None:
            return list(values)
        import torch

        tensor = torch.tensor(values, dtype=torch.int64)
        with _gone("adding up over all ranks"):
            _distributed().all_reduce(tensor, group=self.group)
        return [int(value) for value in tensor.tolist()]

    def ask_largest(self, values: Sequence[int]) -> Asked:
        """Begin to find the largest of each of ``values`` (int64) over the ranks; only with a group."""
        import torch

        distributed = _distributed()
        tensor = torch.tensor(values, dtype=torch.int64)
        with _gone("asking all ranks"):
            work = distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX, group=self.group, async_op=True)
        return Asked(work, tensor)


class Asked:
    """An answer of all ranks that is on its way."""

    def __init__(self, work: Work, tensor: Tensor) -> None:
        self._tensor = tensor
        self._done = threading.Event()
        self._future = work.get_future()
        self._future.add_done_callback(lambda _: self._done.set())

    def arrived(self) -> bool:
        """Say whether it is here, or what went wrong, so that :meth:`answer` does not wait."""
        return self._done.is_set()

    def answer(self) -> list[int]:
        """Wait for it; signals are handled meanwhile, which waiting in the library itself would put off."""
        self._done.wait()
        with _gone("waiting for all ranks"):
            self._future.value()
        return [int(value) for value in self._tensor.tolist()]


def cores_of_rank(environment: Mapping[str, str] | None = None) -> int:
    """Return how many of this machine's cores are this rank's: those that it may run on, shared by the ranks here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // ranks_here(environment))


def ranks_here(environment: Mapping[str, str] | None = None) -> int:
    """Return how many ranks share this machine, by torchrun's ``LOCAL_WORLD_SIZE``; 1 where nobody says."""
    here = (os.environ if environment is None else environment).get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(here) if here.isdigit() else 1)


def _stated(environment: Mapping[str, str]) -> tuple[int, int] | None:
    if "WORLD_SIZE" not in environment:
        return None
    try:
        return int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the environment has WORLD_SIZE={environment['WORLD_SIZE']} and RANK={environment.get('RANK', '')}; "
            "start with torchrun, or pass rank and world_size"
        ) from error


def _of_group(group: ProcessGroup, given: tuple[int, int] | None) -> tuple[int, int]:
    found = (int(group.rank()), int(group.size()))
    if given is not None and given != found:
        raise ConfigError(
            f"rank {given[0]} of {given[1]} is given, and a group in which this is rank {found[0]} of {found[1]}"
        )
    return found


def _of_default_group() -> tuple[int, int] | None:
    distributed = _distributed()
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _gloo(group: ProcessGroup | None) -> ProcessGroup | None:
    """Return a gloo group of the ranks of ``group`` (None: all): itself, where it is one; None for a single rank."""
    distributed = _distributed()
    if group is None:
        return distributed.new_group(backend="gloo")  # type: ignore[no-any-return]
    if group.size() == 1:
        return None
    return group if distributed.get_backend(group) == "gloo" else _new_group(group)


def _new_group(group: ProcessGroup) -> ProcessGroup:
    distributed = _distributed()
    members = distributed.get_process_group_ranks(group)
    return distributed.new_group(members, backend="gloo", use_local_synchronization=True)  # type: ignore[no-any-return]


def _first(group: ProcessGroup) -> int:
    return int(_distributed().get_global_rank(group, 0))


def _told(error: Exception) -> Exception:
    """Mark an error of ours as one that all ranks raise; return it."""
    if isinstance(error, StreamfeedError):
        error.told_to_all = True
    return error


def _portable(error: Exception, rank: int) -> Exception:
    """Return ``error`` as another process can raise it: ours as it is, others in words."""
    if isinstance(error, StreamfeedError):
        try:
            pickle.dumps(error)
        except Exception:  # noqa: BLE001 - an attribute of a subclass may raise anything
            return StreamfeedError(f"rank {rank} failed: {error}")
        return error
    return StreamfeedError(f"rank {rank} failed: {type(error).__name__}: {error}")


@contextmanager
def _gone(doing: str) -> Iterator[None]:
    """Say in words what gloo says when the process of another rank has ended."""
    try:
        yield
    except RuntimeError as error:
        raise RankError(
            f"another rank ended or cannot be reached (while {doing}); its own message says why. {_shortly(error)}"
        ) from error


def _shortly(error: Exception) -> str:
    return " ".join(str(error).split())[-200:]


def _distributed() -> Any:  # noqa: ANN401 - the torch.distributed module
    from torch import distributed

    return distributed
