"""What ``streamfeed trace`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamfeed.cli.own_flags import take_own, whole_number
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Asked", "asked_of"]

_FLAGS = {"--step": "", "--steps": "", "--rank": "", "--ranks": "", "--find": ""}


@dataclass(frozen=True)
class Asked:
    """What is to be traced: steps ``first`` to ``last``, of one rank if any, pieces with ``find``."""

    run: Path
    first: int
    last: int
    rank: int | None = None
    ranks: int | None = None
    find: str | None = None
    records: bool = False
    as_json: bool = False


def asked_of(argv: Sequence[str]) -> tuple[Asked, list[str]]:
    """Return what is asked for, and the other words, which are flags of training. Raises :class:`ConfigError`."""
    own, switches, words = take_own(argv, _FLAGS, ["--json", "--records"])
    if not words or words[0].startswith("--"):
        raise ConfigError("name the run folder first, as in: streamfeed trace runs/web --step 1200")
    if any(word == "--find=" for word in argv):
        raise ConfigError("--find takes the text to be found")
    first, last = _steps(own)
    rank = whole_number("--rank", own["--rank"], 0) if own["--rank"] else None
    ranks = whole_number("--ranks", own["--ranks"], 1) if own["--ranks"] else None
    if rank is not None and ranks is not None and rank >= ranks:
        raise ConfigError(f"there is no rank {rank} of {ranks}; the first is 0")
    find = own["--find"] or None
    return Asked(Path(words[0]), first, last, rank, ranks, find, "--records" in switches, "--json" in switches), words[
        1:
    ]


def _steps(own: Mapping[str, str]) -> tuple[int, int]:
    if bool(own["--step"]) == bool(own["--steps"]):
        raise ConfigError("give --step N, or --steps A:B for steps A to B")
    if own["--step"]:
        step = whole_number("--step", own["--step"], 1)
        return step, step
    begin, colon, end = own["--steps"].partition(":")
    first, last = whole_number("--steps", begin, 1), whole_number("--steps", end if colon else begin, 1)
    if last < first:
        raise ConfigError(f"--steps {first}:{last} is empty: steps A to B are those from A on, up to and with B")
    return first, last
