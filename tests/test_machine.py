"""What a machine has left: as Linux says it, under cgroups of both versions, and where nobody says anything."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from streamfeed.machine import Descriptors, Machine, allow_descriptors

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20
NO_LIMIT = 9223372036854771712


def write(root: Path, **files: str) -> None:
    """Write files below ``root``; two underscores in a name are a slash, three a dot."""
    for name, text in files.items():
        path = root / name.replace("___", ".").replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 1000 MB free, without cgroups."""
    write(tmp_path, proc__meminfo=f"MemTotal: {4000 * 1024} kB\nMemFree: 7 kB\nMemAvailable:   {1000 * 1024} kB\n")
    return tmp_path


def test_memory_is_what_the_kernel_can_hand_out_without_swapping(root: Path) -> None:
    assert Machine.look(root).memory == 1000 * MB
    assert Machine.look(root).memory_of == "this machine"


def test_what_no_one_says_is_not_known(tmp_path: Path) -> None:
    found = Machine.look(tmp_path)
    assert (found.memory, found.shm) == (None, None)
    assert found.shared(4).memory is None


def test_under_cgroups_of_version_2_the_least_that_ours_or_one_around_it_has_left_counts(root: Path) -> None:
    write(root, proc__self__cgroup="0::/job/step\n")
    top = root / "sys/fs/cgroup"
    for folder, limit, used, cached in (("job", 600, 500, 200), ("job/step", 800, 100, 0)):
        write(
            top / folder,
            memory___max=str(limit * MB),
            memory___current=str(used * MB),
            memory___stat=f"anon 1\nactive_file {cached * MB // 2}\ninactive_file {cached * MB // 2}\n",
        )
    found = Machine.look(root)
    assert found.memory == 300 * MB, "600 less 500, of which 200 are pages of files that the kernel takes back"
    assert "cgroup" in found.memory_of
    write(top / "job", memory___max="max\n")
    assert Machine.look(root).memory == 700 * MB


def test_under_cgroups_of_version_1_too_and_a_limit_beyond_all_memory_is_none(root: Path) -> None:
    write(root, proc__self__cgroup="5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n")
    own = root / "sys/fs/cgroup/memory/docker/abc"
    write(own, memory___limit_in_bytes=str(400 * MB), memory___usage_in_bytes=str(390 * MB))
    write(own, memory___stat=f"active_file 1\ninactive_file 1\ntotal_active_file {MB}\ntotal_inactive_file {89 * MB}\n")
    write(root / "sys/fs/cgroup/memory", memory___limit_in_bytes=str(NO_LIMIT), memory___usage_in_bytes="5")
    assert Machine.look(root).memory == 100 * MB
    write(own, memory___limit_in_bytes=str(NO_LIMIT))
    assert Machine.look(root).memory == 1000 * MB


def test_in_a_container_whose_path_is_the_host_s_what_is_mounted_counts(root: Path) -> None:
    write(root, proc__self__cgroup="4:memory:/docker/abc\n")
    write(root / "sys/fs/cgroup/memory", memory___limit_in_bytes=str(64 * MB), memory___usage_in_bytes="0")
    assert Machine.look(root).memory == 64 * MB


def test_a_cgroup_that_uses_more_than_its_limit_has_nothing_left(root: Path) -> None:
    write(root, proc__self__cgroup="0::/\n")
    write(root / "sys/fs/cgroup", memory___max=str(MB), memory___current=str(3 * MB))
    assert Machine.look(root).memory == 0


def test_ranks_of_one_machine_share_memory_and_shared_memory_but_not_descriptors() -> None:
    files = Descriptors(1024, 4096, 10)
    whole = Machine(900, "this machine", 300, files)
    assert whole.shared(3) == Machine(300, "this machine", 100, files)
    assert whole.shared(1) == whole


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_says_all_of_it() -> None:
    found = Machine.look()
    assert found.memory
    assert found.shm is not None
    assert found.descriptors is not None
    assert 3 <= found.descriptors.open < found.descriptors.soft <= found.descriptors.hard


def in_process_with_limits(soft: int, hard: int, statement: str) -> list[str]:
    """Run ``statement`` in a fresh process with these limits of open files; return what it says."""
    code = (
        f"import resource as r; from streamfeed.machine import *; r.setrlimit(r.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        f"{statement}\nprint(*r.getrlimit(r.RLIMIT_NOFILE))"
    )
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_the_soft_limit_of_descriptors_is_raised_as_far_as_needed_and_the_hard_one_stays() -> None:
    assert in_process_with_limits(64, 256, "print(allow_descriptors(200))") == ["True", "200", "256"]
    assert in_process_with_limits(64, 256, "print(allow_descriptors(50))") == ["True", "64", "256"]


def test_where_the_hard_limit_is_lower_nothing_is_changed_and_that_is_said() -> None:
    assert in_process_with_limits(64, 256, "print(allow_descriptors(257))") == ["False", "64", "256"]
    said = in_process_with_limits(64, 256, "found = Machine.look().descriptors; print(found.soft, found.hard)")
    assert said[:2] == ["64", "256"]


def test_what_is_allowed_already_changes_nothing_here() -> None:
    assert allow_descriptors(1)
