"""Runs scripts as trainers, each in a session of its own, forked from this process that has imported what takes long.

A line of JSON on standard input names ``script``, ``errors`` (a file) and ``temp`` (its folder for temporary files).
Says ``pid N``, what the script says, and ``status S`` when it has ended. The script is the ``__main__`` of its process,
and ends as a script does. When the tests are killed, this process and the trainer are killed too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types
from pathlib import Path

import torch  # noqa: F401
import transformers

import streamfeed.loader.loader  # noqa: F401
from tests.loader.die_with_parent import die_with_parent

assert transformers.AutoTokenizer is not None


def become(script: str, errors: str, temp: str) -> None:
    die_with_parent()
    os.setsid()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    os.environ["TMPDIR"] = tempfile.tempdir = temp
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    exec(compile(Path(script).read_text(), script, "exec"), module.__dict__)


die_with_parent()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        become(**json.loads(line))
        break
    print("pid", child, flush=True)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
