"""A module of this package in a process of its own, which may import what it likes, hang or die."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ended", "run_main"]

# The child finds this package, and what it imports, exactly where this process would.
_START = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(sys.argv[3:])"
)


class Ended(NamedTuple):
    """How a process ended: its exit code, and the last line that it wrote to its standard error."""

    code: int
    message: str


def run_main(module: str, arguments: Sequence[str], timeout_s: float) -> Ended:
    """Run ``main(arguments)`` of ``module``, which says what it found in files; its output is dropped.

    Raises ``TimeoutError`` where it takes longer than ``timeout_s``; it is killed then.
    """
    try:
        ended = subprocess.run(  # noqa: S603 - this interpreter, our module
            [sys.executable, "-c", _START, json.dumps(list(map(str, sys.path))), module, *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    last = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return Ended(ended.returncode, last or "no message")
