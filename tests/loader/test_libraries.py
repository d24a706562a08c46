"""Pages of libraries: dropped where the file has them, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamfeed.loader.libraries import clean_pages

CODE, PATCHED, SWAPPED, TABLE, DATA, OTHER, HEAP = (
    f"{begin:x}-{begin + 0x1000:x} {rights} 00000000 fe:00 3  {name}\nAnonymous:   {anonymous} kB\nSwap:   {swap} kB\n"
    for begin, rights, name, anonymous, swap in (
        (0x10000, "r-xp", "/lib/libc.so.6", 0, 0),
        (0x20000, "r--p", "/lib/libc.so.6", 4, 0),
        (0x28000, "r--p", "/lib/libc.so.6", 0, 4),
        (0x30000, "r--p", "/lib/x.abi3.so", 0, 0),
        (0x40000, "rw-p", "/lib/libc.so.6", 0, 0),
        (0x50000, "r--p", "/usr/lib/locale/C.utf8/LC_CTYPE", 0, 0),
        (0x60000, "rw-p", "[heap]", 4, 0),
    )
)


def test_only_what_is_as_it_is_in_the_file_is_dropped() -> None:
    found = list(clean_pages(CODE + PATCHED + SWAPPED + TABLE + DATA + OTHER + HEAP))
    assert found == [(0x10000, 0x11000), (0x30000, 0x31000)]


def test_a_system_that_does_not_say_what_was_written_keeps_all() -> None:
    assert not list(clean_pages(CODE.partition("Anonymous")[0]))


PROGRAM = """
import mmap, os, sys
import pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
from streamfeed.loader.libraries import clean_pages, give_back_libraries
with open(os.fsencode(sys.argv[1]) + b"\\xe9.so", "w+b") as file:  # mapped by a name that is no text
    file.write(b"x")
    file.flush()
    mapped = mmap.mmap(file.fileno(), 1)
def held():
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(rollup.partition("Rss:")[2].split()[0])
before = held()
give_back_libraries()
after = held()
table = pa.table({"text": ["a", "b"]})
pq.write_table(table, sys.argv[1])
assert pq.read_table(sys.argv[1]) == table
print(before - after)
"""


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not say what it holds")
def test_a_process_works_on_with_less_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "t.parquet")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) > 5_000  # kB; there are 20,000 and more
