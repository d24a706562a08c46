"""``streamfeed verify --config``: a stream against its promise, on one's own corpus before a big run.

The rows of one topology are held against those of others, which are killed, and gone on from, at random places.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from streamfeed.cli.command import asks_for_help, told
from streamfeed.cli.own_flags import take_own, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfeed.cli.relay import Fault, Leg
    from streamfeed.train.config import RunConfig

__all__ = ["StreamVerdict", "main", "verify_stream"]

_USAGE = """usage: streamfeed verify --config FILE [--batches N] [--seed S] [--json] [FLAGS]

Reads N batches (default 100) on one rank, then again on other numbers of ranks and workers, each stopped at a random
place and gone on from its state by the next. Ranks with workers are processes of their own, and are stopped by SIGKILL,
their workers with them; those without are dropped. All rows, and the hashes that states carry, must be equal. Exits
with 1 where they are not, naming shard and record of the first row that differs. --seed draws other places. The
settings are those of training: streamfeed train --help
"""


_FLAGS = {"--batches": "100", "--seed": "0"}


@dataclass(frozen=True)
class StreamVerdict:
    """What was compared: ``rows`` of the stream, on the ``legs`` of a relay, and ``hashes`` that states carry.

    ``killed`` ranks were processes that died by SIGKILL. ``fault`` is the first difference; None where all were equal.
    """

    rows: int
    tokens: int
    lanes: int
    legs: Sequence[Leg]
    hashes: int
    killed: int
    fault: Fault | None


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0 where the promise is kept, 1 where it is not, 2 for an error of the settings."""
    if asks_for_help(argv, _USAGE):
        return 0
    return told(lambda: _run(argv), logging.ERROR)  # that ranks do not divide lanes is meant here


def _run(argv: Sequence[str]) -> int:
    from streamfeed.train.flags import Arguments, parse

    own, switches, words = take_own(argv, _FLAGS, ["--json"])
    as_json = "--json" in switches
    verdict = verify_stream(
        parse(Arguments.split(words)),
        whole_number("--batches", own["--batches"], 1),
        seed=whole_number("--seed", own["--seed"], 0),
        say=_silent if as_json else _say,
    )
    if as_json:
        json.dump({"ok": verdict.fault is None, **asdict(verdict)}, sys.stdout, ensure_ascii=False, indent=1)
        sys.stdout.write("\n")
    else:
        _show(verdict)
    return 0 if verdict.fault is None else 1


def verify_stream(
    config: RunConfig, batches: int = 100, *, seed: int = 0, say: Callable[[str], None] | None = None
) -> StreamVerdict:
    """Hold ``batches`` batches of the stream of ``config`` against what other topologies and resumes make of it.

    ``say`` is told of every leg. Raises :class:`~streamfeed.errors.StreamfeedError` where the first reading fails: it
    names the shard. What fails afterwards is the verdict's fault.
    """
    from streamfeed.cli.relay import Relay

    say = say or _silent
    relay = Relay(config.stream(), config.loader.batch_size, config.loader.pad_to_multiple_of)
    relay.read(batches)
    say(f"{relay.rows:,} rows of {relay.lanes} lane(s) read on 1 rank without workers")
    legs: list[Leg] = []
    fault: Fault | None = None
    for leg in relay.legs(seed):
        before = relay.killed
        fault = relay.run(leg)
        legs.append(leg)
        say(f"{leg.words(relay.killed - before)}: {'equal' if fault is None else 'NOT EQUAL'}")
        if fault is not None:
            break
    return StreamVerdict(relay.rows, relay.tokens, relay.lanes, legs, relay.hashes, relay.killed, fault)


def _show(verdict: StreamVerdict) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    if verdict.fault is None:
        killed = f" {verdict.killed} process(es) with workers were killed by SIGKILL." if verdict.killed else ""
        console.print(
            f"The stream keeps its promise: {verdict.rows:,} rows and {verdict.hashes:,} hashes of states are equal on "
            f"{len(verdict.legs)} other topologies, each but the first resumed from the state of another.{killed}",
            style="green",
            markup=False,
        )
        return
    console.print(f"The stream does NOT keep its promise: {verdict.fault.words()}", style="red", markup=False)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _silent(line: str) -> None:
    del line
