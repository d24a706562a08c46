"""The command line of the main job: settle what to run, then import what is heavy and run it."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamfeed.errors import ConfigError, StreamfeedError
from streamfeed.train.flags import Arguments, parse
from streamfeed.train.folders import RunFolder, find_resume, new_folder
from streamfeed.train.stop import Stop, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from streamfeed.train.checkpoint import Checkpoint
    from streamfeed.train.config import RunConfig

__all__ = ["Plan", "main", "plan"]


@dataclass(frozen=True)
class Plan:
    """What a command line asks for: the settings, where to, from where, and whether it is the embedded demo."""

    config: RunConfig
    run: RunFolder
    start: Checkpoint | None
    demo: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the main job; return 0, 1 for an error of the run, 2 for one of the settings.

    Asked to stop by SIGTERM or SIGINT, it saves what it has learnt and returns 128 and the signal's number: 143 or 130.
    """
    from rich.console import Console

    errors = Console(stderr=True, soft_wrap=True)
    first = os.environ.get("RANK", "0") == "0"
    stop = Stop()
    with stop.handling():
        try:
            with stop.interruptible():
                settled = plan(sys.argv[1:] if argv is None else argv)
            _run(settled, Console(soft_wrap=True), stop)
        except StreamfeedError as error:
            if first or not error.told_to_all:
                errors.print(f"error: {error}", style="red", markup=False, highlight=False)
            return 2 if isinstance(error, ConfigError) else 1
        except Stopped as stopped:
            if first:
                errors.print(f"{stopped}; go on with --resume latest", markup=False, highlight=False)
            return stopped.code
    return 0


def plan(argv: Sequence[str]) -> Plan:
    """Settle the settings: flags over ``--config`` files over, for a resume, those of its run.

    Raises :class:`~streamfeed.errors.ConfigError` for anything that cannot work, before any data is read.
    """
    arguments = Arguments.split(argv)
    given = parse(arguments)
    if given.resume is None:
        config, demo = _or_demo(arguments, given)
        config.check()
        if config.train.output_dir is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError("several ranks need one folder: name it with --train.output_dir")
        return Plan(config, new_folder(config.train.output_dir, "demo" if demo else "run"), None, demo)
    found = find_resume(given.resume, given.train.output_dir)
    config, demo = given, False
    if not arguments.files and found.run.config.exists():
        config = parse(arguments.over(found.run.config))
    else:
        config, demo = _or_demo(arguments, given)
    config.check()
    asked = given.train.output_dir
    stays = asked is None or Path(asked).resolve() == found.run.path.resolve()
    return Plan(config, found.run if stays else new_folder(asked, "run"), found.checkpoint, demo)


def _or_demo(arguments: Arguments, given: RunConfig) -> tuple[RunConfig, bool]:
    """Return the settings, those of the demo below them where no data is named, and whether it is the demo."""
    if given.data.named:
        return given, False
    for name in ("text", "format", "tokenizer"):
        if getattr(given.data, name) is not None:
            raise ConfigError(f"data.{name} is given but no data: name it with --data.uri or data.sources")
    from streamfeed.train.demo import DEFAULTS

    return parse(arguments, DEFAULTS), True


def _run(settled: Plan, console: Console, stop: Stop) -> None:
    from streamfeed.train.progress import Reporter

    # Read when torch is loaded. By default its threads spin while they wait for each other: on cores shared with the
    # loader's workers or other jobs that made a step of the demo 1.5 to 4 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Quiet where several ranks share a terminal: each rank sets this up before it knows the others.
    first = os.environ.get("RANK", "0") == "0"
    reporter = Reporter(console, enabled=first)
    with reporter, _log_to(console, logging.INFO if first else logging.ERROR):
        if settled.demo:
            from streamfeed.train.demo import prepare

            with stop.interruptible():
                prepare(reporter.note)
        if settled.config.resume is not None and settled.start is None:
            reporter.note(f"{settled.run.path} has no checkpoint yet: starting at step 0")
        reporter.note("Loading torch and transformers ...")
        with stop.interruptible():
            from streamfeed.train.loop import train

        summary = train(settled.config, settled.run, settled.start, reporter, stop)
    reporter.summary(summary)


@contextmanager
def _log_to(console: Console, level: int) -> Iterator[None]:
    """Show the library's log lines from ``level`` on."""
    handler: logging.Handler = logging.StreamHandler(console.file)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    if console.is_terminal:
        from rich.logging import RichHandler

        handler = RichHandler(console=console, show_path=False, show_time=False, markup=False)
    logger = logging.getLogger("streamfeed")
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
