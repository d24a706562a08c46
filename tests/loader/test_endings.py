"""However a trainer ends, its workers end too, within seconds, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.streams import CACHE, corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 5

pytestmark = pytest.mark.processes

BEGIN = """
import gc, json, os, signal, sys
import torch
from pathlib import Path
from streamfeed import Source, StreamConfig, StreamLoader

print("main", flush=True)
config = StreamConfig([Source({corpus!r})], tokenizer={tokenizer!r}, seq_len=32, shuffle_buffer=24, lanes=4)
loader = StreamLoader(config, 2, num_workers=2, start_method={method!r}, cache_dir=Path({cache!r}))
batches = iter(loader)
next(batches)
print("ready", json.dumps([worker._process.pid for worker in loader._crew.workers]), flush=True)
"""
GO_ON = "\nfor _ in batches: pass\n"
WAIT = "\nsignal.pause()\n"


@dataclass
class Trainer:
    """A script that runs; ``workers`` are the ids of its worker processes."""

    zygote: subprocess.Popen[str]
    pid: int
    workers: list[int]
    errors: Path
    temp: Path
    has_ended: bool = False

    def family(self) -> list[psutil.Process]:
        """All processes of the trainer's session: workers, fork server, resource tracker and itself."""
        return [process for process in psutil.process_iter() if _session(process.pid) == self.pid]

    def line(self, word: str) -> str:
        """Return the rest of the trainer's next line, which begins with ``word``."""
        line = self.read()
        assert line.startswith(word), (line, self.errors.read_text())
        return line.removeprefix(word).strip()

    def read(self) -> str:
        """Return the next line of what the trainer says, or of what the zygote says about it."""
        assert self.zygote.stdout is not None
        line = self.zygote.stdout.readline()
        self.has_ended = self.has_ended or line.startswith("status") or not line
        return line

    def ended(self) -> int:
        """Wait for the trainer's end; return its exit code."""
        return int(self.line("status"))

    def clear(self) -> None:
        """Kill what is left of a test that failed, and read what it said: the next trainer's lines come behind it."""
        if not self.pid:
            self.zygote.kill()  # and with it the trainer that we do not know
        for process in self.family() if self.pid else ():
            process.kill()
        while not self.has_ended:
            self.read()

    def check_nothing_is_left(self, family: list[psutil.Process]) -> None:
        """Check that all of ``family`` are gone, and what they could have left behind too."""
        _, alive = psutil.wait_procs(family, LIMIT_S)
        left = [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        assert not left, [process.cmdline() for process in left]
        assert not self.family()
        assert list(self.temp.rglob("*")) == []
        numbers = {str(process.pid) for process in family}
        assert not [path for path in Path("/dev/shm").iterdir() if numbers & set(path.name.split("-"))]


def _session(pid: int) -> int:
    try:
        zombie = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return -1 if zombie else os.getsid(pid)
    except (psutil.Error, OSError):
        return -1


@pytest.fixture(scope="module")
def zygote() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("trainer_zygote.py"))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # which writes a line in pieces, between those of another process
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def start(zygote: subprocess.Popen[str], tmp_path: Path, tokenizer_folder: Path) -> Iterator[StartTrainer]:
    corpus(tmp_path / "corpus", "jsonl", [30, 22, 18])
    with tempfile.TemporaryDirectory(prefix="sf-") as temp:  # a socket's path has room for 107 bytes
        starter = StartTrainer(zygote, tmp_path, Path(temp), tokenizer_folder)
        yield starter
        for trainer in starter.trainers:
            trainer.clear()


class StartTrainer:
    def __init__(self, zygote: subprocess.Popen[str], folder: Path, temp: Path, tokenizer: Path) -> None:
        self.zygote, self.folder, self.temp, self.tokenizer = zygote, folder, temp, tokenizer
        self.trainers: list[Trainer] = []

    def __call__(self, method: str, rest: str) -> Trainer:
        """Start a script that has no ``if __name__ == "__main__"``; return when its workers have handed out a batch."""
        script, errors = self.folder / "script.py", self.folder / "errors.txt"
        begin = BEGIN.format(
            corpus=str(self.folder / "corpus"), tokenizer=str(self.tokenizer), method=method, cache=str(CACHE)
        )
        script.write_text(begin + rest)
        assert self.zygote.stdin is not None
        self.zygote.stdin.write(
            json.dumps({"script": str(script), "errors": str(errors), "temp": str(self.temp)}) + "\n"
        )
        self.zygote.stdin.flush()
        trainer = Trainer(self.zygote, 0, [], errors, self.temp)
        self.trainers.append(trainer)
        lines = [trainer.read() for _ in ("pid", "main")]  # in either order
        trainer.pid = next(int(line.removeprefix("pid")) for line in lines if line.startswith("pid"))
        assert "main\n" in lines, (lines, errors.read_text())
        trainer.workers = json.loads(trainer.line("ready"))
        return trainer


METHODS = ("forkserver", "spawn", "fork")


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_ends_everything(start: StartTrainer, method: str) -> None:
    trainer = start(method, GO_ON)
    family = trainer.family()
    assert {trainer.pid, *trainer.workers} <= {process.pid for process in family}
    os.killpg(trainer.pid, signal.SIGINT)
    assert trainer.ended() == -signal.SIGINT
    trainer.check_nothing_is_left(family)
    errors = trainer.errors.read_text()
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("method", METHODS)
def test_a_trainer_that_is_killed_takes_everything_with_it(start: StartTrainer, method: str) -> None:
    trainer = start(method, WAIT)
    family = trainer.family()
    os.kill(trainer.pid, signal.SIGKILL)
    assert trainer.ended() == -signal.SIGKILL
    trainer.check_nothing_is_left(family)


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_a_trainer_that_leaves_by_os_exit_takes_everything_with_it(start: StartTrainer, method: str) -> None:
    trainer = start(
        method, "\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(7)); print('waits', flush=True)" + WAIT
    )
    trainer.line("waits")
    family = trainer.family()
    os.kill(trainer.pid, signal.SIGUSR1)
    assert trainer.ended() == 7
    trainer.check_nothing_is_left(family)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_that_stops_half_way_ends_and_its_workers_never_imported_it_or_torch(
    start: StartTrainer, method: str
) -> None:
    trainer = start(  # a pipe, since a signal that came just before pause() would be waited for ever
        method,
        "\nend, news = os.pipe(); signal.signal(signal.SIGUSR1, lambda *_: os.write(news, b'.'))"
        "\nprint('waits', flush=True); os.read(end, 1)\n",
    )
    trainer.line("waits")
    family = trainer.family()
    for pid in trainer.workers:
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "libarrow" in maps
        assert "libtorch" not in maps
    os.kill(trainer.pid, signal.SIGUSR1)
    assert trainer.ended() == 0  # and its line "main" came once
    trainer.check_nothing_is_left(family)
    assert trainer.errors.read_text() == ""


def test_deleting_the_loader_ends_its_workers(start: StartTrainer) -> None:
    trainer = start(
        "forkserver",
        """
del batches, loader
gc.collect()
print("deleted", flush=True)
signal.pause()
""",
    )
    family = trainer.family()
    trainer.line("deleted")
    _, alive = psutil.wait_procs([one for one in family if one.pid in trainer.workers], LIMIT_S)
    assert not alive
    os.kill(trainer.pid, signal.SIGTERM)
    assert trainer.ended() == -signal.SIGTERM
    trainer.check_nothing_is_left(family)


def test_a_trainer_killed_between_two_passes_leaves_no_fork_server(start: StartTrainer) -> None:
    trainer = start("forkserver", "\nloader.close(); print('closed', flush=True)" + WAIT)
    trainer.line("closed")
    family = trainer.family()
    assert len(family) >= 2
    os.kill(trainer.pid, signal.SIGKILL)
    assert trainer.ended() == -signal.SIGKILL
    trainer.check_nothing_is_left(family)


def test_a_forked_child_of_the_trainer_does_not_keep_workers_alive(start: StartTrainer) -> None:
    """It holds copies of every pipe; the trainer's end shows all the same."""
    trainer = start(
        "fork", "\nif os.fork() == 0:\n    signal.pause()\n    os._exit(0)\nprint('forked', flush=True)" + WAIT
    )
    trainer.line("forked")
    family = trainer.family()
    os.kill(trainer.pid, signal.SIGKILL)
    assert trainer.ended() == -signal.SIGKILL
    workers = [process for process in family if process.pid in trainer.workers]
    _, alive = psutil.wait_procs(workers, LIMIT_S)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    (child,) = trainer.family()
    child.kill()


def test_starting_a_worker_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, streamfeed.loader.fork_server; print(sorted({'torch', 'transformers'} & sys.modules.keys()))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
