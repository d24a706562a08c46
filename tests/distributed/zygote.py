"""Runs functions on the ranks of a gloo group, each forked from this process that has imported what takes long.

A line of JSON on standard input names ``work`` (``module:function``), ``size``, ``folder``, ``seconds`` (of every
collective; null: without a group), ``environment`` (more variables) and ``arguments``. The function is called on every
rank, with its rank, its size and the arguments; what it returns is written as JSON to ``folder/rank-N.json``, what it
says to ``folder/rank-N.log``. Says ``codes`` and how each rank ended. When the tests are killed, this process and the
ranks are killed too.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonargparse
import torch
import torch._inductor.standalone_compile  # by torch.use_deterministic_algorithms
import torch.distributed.fsdp
import torch.distributed.tensor
import transformers
from torch import distributed

import streamfeed.formats.parquet
import streamfeed.train.loop
from tests.loader.die_with_parent import die_with_parent

# What a rank would import by itself: seconds of each.
USED = (jsonargparse.ArgumentParser, transformers.AutoTokenizer, transformers.LlamaForCausalLM, streamfeed.train.loop)


def become(
    rank: int,
    work: str,
    size: int,
    folder: str,
    seconds: float | None,
    environment: dict[str, str],
    arguments: dict[str, Any],
) -> int:
    die_with_parent()
    log = os.open(f"{folder}/rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ |= environment
    torch.set_num_threads(1)
    try:
        if seconds is not None:
            join(rank, size, folder, seconds)
        module, _, name = work.partition(":")
        made = getattr(import_module(module), name)(rank, size, **arguments)
        Path(folder, f"rank-{rank}.json").write_text(json.dumps(made))
        if seconds is not None:
            distributed.destroy_process_group()
    except BaseException:  # noqa: BLE001 - the tests read it
        traceback.print_exc()
        return 1
    return 0


def join(rank: int, size: int, folder: str, seconds: float) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )


def main() -> None:
    die_with_parent()
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        children = []
        for rank in range(asked["size"]):
            child = os.fork()
            if child == 0:
                code = become(rank, **asked)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            children.append(child)
        print("pids", json.dumps(children), flush=True)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print("codes", json.dumps(codes), flush=True)


main()
