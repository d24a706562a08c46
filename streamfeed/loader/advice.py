"""What to tell the user before anything is started: what cannot fit, and how many workers are of use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import ConfigError
from streamfeed.loader.glance import glance
from streamfeed.loader.needs import Needs, megabytes, needs_of
from streamfeed.machine import Machine, allow_descriptors
from streamfeed.topology import cores_of_rank, ranks_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.dataset.share import Share
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.plan.plan import Plan

__all__ = [
    "Suggestion",
    "check",
    "check_shared_memory",
    "off_by_much",
    "refuse_what_cannot_fit",
    "room_for_workers",
    "suggest_workers",
]

logger = logging.getLogger(__name__)

SPARE_FILES = 64
"""Descriptors that a raised limit leaves to others in the process."""

HEADROOM = 1.25
"""Workers give this many times the tokens that training takes, so that a slow moment is not waited for."""


class Suggestion(NamedTuple):
    """A number of worker processes for a rank, and why it is that one."""

    workers: int
    why: str


def room_for_workers(cores: int, engine_threads: int = 1) -> int:
    """Return how many workers can run at once beside the trainer, which has a core to itself; at least one."""
    return max(1, (cores - 1) // max(1, engine_threads))


def suggest_workers(
    cores: int,
    lanes: int,
    *,
    worker_tokens_per_s: float | None = None,
    training_tokens_per_s: float | None = None,
    engine_threads: int = 1,
) -> Suggestion:
    """Return how many workers a rank should have that hosts ``lanes`` lanes and may use ``cores`` cores.

    One core is the trainer's. A worker takes ``engine_threads`` of the others and gives ``worker_tokens_per_s``; where
    that and what training takes are known, as few workers as keep it from waiting, else as many as there is room for.
    """
    room = room_for_workers(cores, engine_threads)
    most = min(room, lanes)
    bound = (
        f"{lanes} lane(s) on this rank, and a worker without a lane does nothing"
        if lanes < room
        else f"{cores} core(s) for this rank, one of them the trainer's"
        + (f", {engine_threads} for each engine" if engine_threads > 1 else "")
    )
    if not (worker_tokens_per_s and training_tokens_per_s):
        return Suggestion(most, bound)
    wanted = max(1, -int(-(HEADROOM * training_tokens_per_s) // worker_tokens_per_s))
    rates = f"training takes {training_tokens_per_s:,.0f} tokens/s and a worker gives {worker_tokens_per_s:,.0f}"
    if wanted <= most:
        return Suggestion(wanted, rates)
    return Suggestion(most, f"{rates}, which {wanted} workers would keep up with; there is room for {most}: {bound}")


def off_by_much(workers: int, lanes: int, cores: int) -> str:
    """Say what is wrong with a number of workers; empty where nothing plainly is. None at all is a choice."""
    if workers > lanes:
        return (
            f"num_workers={workers}, and this rank hosts {lanes} lane(s): {lanes} worker(s) start, more would have "
            "nothing to do"
        )
    if workers > cores:
        return (
            f"num_workers={workers} on {cores} core(s) of this rank: they take turns, and each takes memory; "
            f"{suggest_workers(cores, lanes).workers} would do as much"
        )
    return ""


def check(
    plan: Plan,
    share: Share,
    workers: int,
    tokenizer: TokenizerSpec,
    *,
    machine: Machine | None = None,
) -> Needs:
    """Say what a rank that is not started yet needs, after comparing it with what there is.

    The ranks on this machine share its memory; descriptors are each process's own, and the limit of this one is raised
    where that is enough. Raises :class:`ConfigError` for what cannot fit, logs once what may not.
    """
    needs = needs_of(plan, share, [glance(source) for source in plan.sources], workers, tokenizer)
    logger.debug("%d worker(s), likely memory: %s", len(needs.workers), needs.summary())
    refuse_what_cannot_fit(needs, plan, workers, Machine.look() if machine is None else machine, ranks_here())
    if workers and (said := off_by_much(workers, share.slots, cores_of_rank())):
        logger.info("%s", said)
    return needs


def refuse_what_cannot_fit(
    needs: Needs,
    plan: Plan,
    workers: int,
    machine: Machine,
    ranks: int = 1,
    allow: Callable[[int], bool] = allow_descriptors,
) -> None:
    """Raise :class:`ConfigError` where ``needs`` of one of ``ranks`` ranks cannot fit into ``machine``.

    ``allow`` raises the limit of descriptors of this process.
    """
    own = machine.shared(ranks)
    _check_memory(needs, plan, workers, own, ranks)
    check_shared_memory(needs.shm, own, ranks)
    _check_descriptors(needs, workers, machine, allow)


def _check_memory(needs: Needs, plan: Plan, workers: int, machine: Machine, ranks: int) -> None:
    if machine.memory is None or needs.memory.most <= machine.memory:
        return
    rules = plan.rules
    left = f"{machine.memory_of} has {megabytes(machine.memory)} left" + _each(ranks)
    if needs.memory.likely <= machine.memory:
        logger.warning(
            "windows of up to window_bytes=%d may take %s of memory where documents are large, and %s; likely are %s",
            rules.window_bytes,
            megabytes(needs.memory.most),
            left,
            megabytes(needs.memory.likely),
        )
        return
    fewer = ""
    if len(needs.workers) > 1:
        each = needs.workers[-1].process.likely
        fewer = f"; each worker less saves {megabytes(each)} (windows are of lanes, whoever hosts them)"
    raise ConfigError(
        f"{_who(workers)} would take about {megabytes(needs.memory.likely)} of memory ({needs.summary()}), and {left}: "
        f"lower shuffle_buffer={rules.shuffle_buffer} or window_bytes={rules.window_bytes}, which are part of what the "
        f"stream is{fewer}"
    )


def check_shared_memory(needed: int, machine: Machine, ranks: int = 1) -> None:
    """Raise :class:`ConfigError` where ``needed`` bytes of shared memory are not free.

    Python does not see that: it reserves nothing, and a write to a page that is not there ends the process (SIGBUS).
    """
    if machine.shm is None or needed <= machine.shm:
        return
    total = needed * ranks
    raise ConfigError(
        f"the workers exchange rows through {megabytes(needed)} of shared memory, and /dev/shm has "
        f"{megabytes(machine.shm)} left{_each(ranks)}: give a container more, as in docker run --shm-size="
        f"{max(1, -(-2 * total // (1 << 30)))}g (or --ipc=host), or take fewer workers"
    )


def _check_descriptors(needs: Needs, workers: int, machine: Machine, allow: Callable[[int], bool]) -> None:
    files = machine.descriptors
    if files is None:
        return
    here = files.open + (needs.descriptors if workers else needs.workers[0].descriptors)
    theirs = max(worker.descriptors for worker in needs.workers) if workers else 0
    wanted = max(here, theirs)
    if wanted > files.hard:
        raise ConfigError(
            f"{'a worker' if theirs > here else 'this process'} would have up to {wanted:,} files open (a shard of "
            f"every source in every lane), and the hard limit is {files.hard:,}: raise it, as in ulimit -n "
            f"{wanted + SPARE_FILES} or docker run --ulimit nofile={wanted + SPARE_FILES}; or take "
            + ("more workers, of fewer lanes each" if theirs > here else "fewer workers" if workers else "some workers")
        )
    if theirs > files.soft:
        logger.info("workers raise their limit of open files from %d to %d", files.soft, theirs)
    if here > files.soft:
        raised = min(files.hard, here + SPARE_FILES)
        if not allow(raised):
            raise ConfigError(
                f"this process would have up to {here:,} files open, and the limit of {files.soft:,} cannot be raised: "
                f"set it before the start, as in ulimit -n {raised}"
            )
        logger.info(
            "the limit of open files is raised from %d to %d (the hard one is %d)", files.soft, raised, files.hard
        )


def _who(workers: int) -> str:
    return f"a loader with num_workers={workers}"


def _each(ranks: int) -> str:
    return f" for each of {ranks} ranks here" if ranks > 1 else ""
