"""The main job on ranks of the pool, with accidents at chosen places."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable


def run(rank: int, size: int, *, folder: str, words: list[str], accident: dict[str, Any] | None = None) -> int:
    """Run the main job in ``folder``; return its exit code.

    ``accident``: what happens (``kill``, ``signal`` or ``fail``), on which ``rank`` (None: each), and where.
    """
    from streamfeed.train.cli import main

    os.chdir(folder)
    if accident is not None and accident.get("rank") in {None, rank}:
        prepare(accident, rank)
    code = main(words)
    print(
        "exit", code, time.time(), "with" if "tensorboard" in sys.modules else "without", "tensorboard", file=sys.stderr
    )
    return code


def prepare(accident: dict[str, Any], rank: int) -> None:
    """Patch the place of the accident; it happens once."""

    def happens() -> None:
        if accident["what"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif accident["what"] == "signal":
            os.kill(os.getpid(), signal.Signals[accident.get("name", "SIGTERM")])
        else:
            raise OSError(28, "No space left on device", f"/scratch/of-rank-{rank}")

    where = accident["where"]
    if where == "time":
        delay = random.Random(accident["seed"]).uniform(0.0, accident["most"])
        threading.Timer(delay, happens).start()
        return
    target, name = {
        "batch": ("streamfeed.loader.loader.StreamLoader", "_next"),
        "step": ("streamfeed.train.log.Log", "step"),
        "save": ("streamfeed.train.job", "finish"),
        "model": ("streamfeed.train.job", "build_model"),
        "evaluation": ("streamfeed.train.evaluate.Evaluation", "_sums"),
    }[where]
    patch(target, name, accident.get("count", 1), happens)


def patch(target: str, name: str, count: int, happens: Callable[[], None]) -> None:
    """Let it happen in front of the ``count``-th call."""
    module, _, attribute = target.rpartition(".")
    owner: Any = sys.modules.get(target) or getattr(sys.modules[module], attribute)
    whole = getattr(owner, name)
    calls = [0]

    def called(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == count:
            happens()
        return whole(*arguments, **options)

    mock.patch.object(owner, name, called).start()
