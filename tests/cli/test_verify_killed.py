"""``streamfeed verify --config`` kills: processes die by SIGKILL, others go on with the next row, nothing is left."""

from __future__ import annotations

import os
import signal
import tempfile
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest

from streamfeed.cli.killed import KilledRank
from streamfeed.cli.verify_stream import main, verify_stream
from streamfeed.train.flags import Arguments, parse
from tests.corpora import texts_with_ids, write_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.cli.stretch import Told

LIMIT_S = 5

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_engine")]


class Sent(NamedTuple):
    """A signal to a group of processes, and who was in it."""

    signal: int
    family: list[psutil.Process]


@pytest.fixture
def killings(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    """What is sent to groups of processes."""
    plain, sent = os.killpg, []

    def killpg(group: int, number: int) -> None:
        everyone = (one for one in psutil.process_iter() if _group(one.pid) == group)
        sent.append(Sent(number, [one for one in everyone if one.pid != group]))
        plain(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    return sent


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sf-") as folder:  # a socket's path has room for 107 bytes
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.delitem(current_process()._config, "tempdir", raising=False)  # type: ignore[attr-defined]
        yield Path(folder)


def topologies(monkeypatch: pytest.MonkeyPatch, *legs: tuple[int, int]) -> None:
    monkeypatch.setattr("streamfeed.cli.relay._TOPOLOGIES", legs)


def words_for(folder: Path, tokenizer: Path, *more: str) -> list[str]:
    write_corpus("jsonl", folder / "data", [text or "" for text in texts_with_ids(120, words=20)], shards=3)
    settings = ["--data.seq_len=32", "--data.shuffle_buffer=24", "--data.lanes=4", "--loader.batch_size=4"]
    return [f"--data.uri={folder / 'data'}", f"--data.tokenizer={tokenizer}", *settings, *more]


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def children() -> set[int]:
    """All processes below this one, but for the tracker that the first process of this kind leaves to the next."""
    found = psutil.Process().children(recursive=True)
    return {one.pid for one in found if "resource_tracker" not in " ".join(one.cmdline())}


@pytest.mark.parametrize("flags", [[], ["--data.epochs=1", "--data.packing=none"]], ids=["repeats", "ends"])
def test_processes_die_by_sigkill_and_others_go_on_with_the_next_row_and_nothing_is_left(
    flags: list[str],
    tmp_path: Path,
    tokenizer_folder: Path,
    temp: Path,
    killings: list[Sent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topologies(monkeypatch, (1, 2), (2, 0))
    before, others = shared_memory(), children()
    assert main([*words_for(tmp_path, tokenizer_folder, *flags), "--batches", "40"]) == 0
    (sent,) = killings
    assert sent.signal == signal.SIGKILL
    assert len(sent.family) == 3, "two workers and their fork server"
    _, alive = psutil.wait_procs(sent.family, LIMIT_S)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    assert children() <= others
    assert shared_memory() <= before
    assert not list(temp.iterdir())
    said = capsys.readouterr().out
    assert "1 rank(s) with 2 worker(s) each, from the beginning, 1 process(es) killed by SIGKILL: equal\n" in said
    assert "2 rank(s) with 0 worker(s) each, from row " in said
    assert ", with the state before: equal\n" in said
    assert "1 process(es) with workers were killed by SIGKILL" in said


def test_all_ranks_of_a_leg_with_workers_are_killed(
    tmp_path: Path, tokenizer_folder: Path, killings: list[Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    topologies(monkeypatch, (2, 1), (1, 0))
    verdict = verify_stream(parse(Arguments.split(words_for(tmp_path, tokenizer_folder))), 30)
    assert verdict.fault is None
    assert verdict.killed == len(killings) == 2
    assert verdict.hashes > 0
    assert verdict.legs[1].first == verdict.legs[0].stop > 0


def test_a_killed_process_that_read_something_else_is_found_by_shard_and_record(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topologies(monkeypatch, (1, 1))
    words = words_for(tmp_path, tokenizer_folder)
    shard = tmp_path / "data" / "part-00002.jsonl"
    before = shard.stat()

    def change(_: str) -> None:
        shard.write_bytes(shard.read_bytes().replace(b"id=97;", b"id=79;"))
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))

    fault = verify_stream(parse(Arguments.split(words)), 60, say=change).fault
    assert fault is not None
    assert (fault.shard, fault.record) == (str(shard), 17)
    assert "killed by SIGKILL" in fault.cause


def test_what_fails_in_a_process_that_is_to_be_killed_is_told(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topologies(monkeypatch, (1, 1))
    words = words_for(tmp_path, tokenizer_folder)
    shard = tmp_path / "data" / "part-00002.jsonl"
    fault = verify_stream(parse(Arguments.split(words)), 60, say=lambda _: shard.unlink(missing_ok=True)).fault
    assert fault is not None
    assert f"{shard}" in fault.words()


@pytest.mark.parametrize(
    ("how", "cause"), [(signal.SIGKILL, "killed by SIGKILL; the system may"), (signal.SIGTERM, "killed by SIGTERM")]
)
def test_a_process_that_dies_before_it_is_killed_is_told_with_its_cause(
    how: int,
    cause: str,
    tmp_path: Path,
    tokenizer_folder: Path,
    killings: list[Sent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topologies(monkeypatch, (1, 1))
    plain, others = KilledRank.read, children()

    def read(self: KilledRank) -> Told:
        os.kill(self.pid, how)
        return plain(self)

    monkeypatch.setattr(KilledRank, "read", read)
    assert main([*words_for(tmp_path, tokenizer_folder), "--batches", "40"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"the process of rank 0 died before it was killed: {cause}" in said
    assert children() <= others
