"""A conversion that is killed ends, run again, with the bytes of one that was not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.convert.conversions import convert, files, records_for_tests
from tests.corpora import write_record_corpus

if TYPE_CHECKING:
    from pathlib import Path

_RUN = "import sys; from streamfeed.cli.main import main; sys.exit(main(sys.argv[1:]))"
_SHARDS = 60


def command(source: Path, dest: Path) -> list[str]:
    flags = ["--to", "jsonl.zst", "--max-records", "5", "--workers", "2", "--quiet"]
    return [sys.executable, "-c", _RUN, "convert", str(source), str(dest), *flags]


@pytest.mark.processes
def test_a_conversion_that_was_killed_three_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    write_record_corpus("jsonl", tmp_path / "in", records_for_tests(5 * _SHARDS), shards=4)
    convert(tmp_path / "in", tmp_path / "whole", "jsonl.zst", max_records=5)
    draw = random.Random(0)
    out = tmp_path / "out"
    for goal in sorted(draw.sample(range(1, _SHARDS), 3)):
        running = subprocess.Popen(command(tmp_path / "in", out), start_new_session=True)
        try:
            while running.poll() is None and len(list(out.glob("shard-*"))) < goal:
                time.sleep(0.002)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        assert not (out / "index.json").exists() or running.returncode == 0
    subprocess.run(command(tmp_path / "in", out), check=True)
    assert files(out) == files(tmp_path / "whole")
