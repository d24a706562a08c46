"""Who we are among the ranks. The one place that reads torchrun's environment and the process group."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

from streamfeed.dataset.state import merge_states
from streamfeed.errors import ConfigError, StreamfeedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["cores_of_rank", "find_rank", "join_states", "once"]

T = TypeVar("T")


def find_rank(
    rank: int | None, world_size: int | None, environment: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """Return the data-parallel rank and world size.

    The arguments win, else the process group or torchrun's ``RANK`` and ``WORLD_SIZE`` say; alone it is ``(0, 1)``.
    Raises :class:`ConfigError` where only one argument is given, where the environment has a ``WORLD_SIZE`` and no
    usable ``RANK``, and where group and environment disagree.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError("give both rank and world_size, or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    environment = os.environ if environment is None else environment
    stated = _stated(environment)
    group = _group()
    if group is None:
        return stated or (0, 1)
    found = (int(group.get_rank()), int(group.get_world_size()))
    if stated is not None and stated != found:
        raise ConfigError(
            f"the process group says rank {found[0]} of {found[1]}, the environment rank {stated[0]} of {stated[1]}; "
            "pass rank and world_size of the data-parallel group"
        )
    return found


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


def cores_of_rank(environment: Mapping[str, str] | None = None) -> int:
    """Return how many of this machine's cores are this rank's: those that it may run on, shared by the ranks here."""
    environment = os.environ if environment is None else environment
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores // max(1, int(here) if here.isdigit() else 1))


def once(make: Callable[[], T], world_size: int) -> T:
    """Return what ``make`` makes, made by one rank for all where a process group of ``world_size`` is up.

    A collective then: call it on every rank. What the first rank raises is raised by all of them.
    """
    group = _data_parallel_group(world_size)
    if group is None:
        return make()
    box: list[Any] = [None, None]
    if group.get_rank() == 0:
        try:
            box = [make(), None]
        except Exception as error:
            group.broadcast_object_list([None, _portable(error)], src=0)
            raise
    group.broadcast_object_list(box, src=0)
    made, failure = box
    if failure is not None:
        raise failure
    return made  # type: ignore[no-any-return]


def _portable(error: Exception) -> Exception:
    """Return ``error`` as another process can raise it: ours as it is, others in words."""
    if isinstance(error, StreamfeedError):
        try:
            pickle.dumps(error)
        except Exception:  # noqa: BLE001 - an attribute of a subclass may raise anything
            return StreamfeedError(f"rank 0 failed: {error}")
        return error
    return StreamfeedError(f"rank 0 failed: {type(error).__name__}: {error}")


def join_states(state: dict[str, Any], world_size: int) -> dict[str, Any]:
    """Return the state of all ranks where a process group of ``world_size`` is up (a collective), else ``state``."""
    group = _data_parallel_group(world_size)
    if group is None:
        return state
    parts: list[dict[str, Any]] = [{} for _ in range(world_size)]
    group.all_gather_object(parts, state)
    return merge_states(parts)


def _data_parallel_group(world_size: int) -> Any:  # noqa: ANN401 - the torch.distributed module
    """Return the group where it is the one of the data-parallel ranks, as far as its size says."""
    group = _group()
    return None if group is None or world_size == 1 or group.get_world_size() != world_size else group


def _group() -> Any:  # noqa: ANN401 - the torch.distributed module
    from torch import distributed

    return distributed if distributed.is_available() and distributed.is_initialized() else None
