"""Real processes for the tests, ranks of a gloo group or alone, without the seconds that torch takes each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parent.parent.parent


@dataclass
class Job:
    """Ranks at work in ``folder``, by process id."""

    pool: RankPool
    folder: Path
    pids: list[int]

    def codes(self) -> list[int]:
        """Wait until all ranks have ended; return how each did."""
        codes: list[int] = json.loads(self.pool.line("codes"))
        self.pool.running = []
        return codes

    def results(self) -> list[Any]:
        """Wait for all ranks, which must not fail; return what each returned."""
        codes = self.codes()
        assert not any(codes), "\n".join(f"rank {rank}: {self.log(rank)}" for rank, code in enumerate(codes) if code)
        return [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(len(codes))]

    def log(self, rank: int) -> str:
        """Return what a rank said so far."""
        path = self.folder / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def kill(self, rank: int) -> None:
        """End a rank by SIGKILL."""
        os.kill(self.pids[rank], signal.SIGKILL)


@dataclass
class RankPool:
    """Starts ranks; one job at a time. The first use takes the seconds of the imports."""

    process: subprocess.Popen[str] | None = None
    running: list[int] = field(default_factory=list)

    def start(
        self, folder: Path, work: str, size: int, arguments: dict[str, Any] | None = None, *, seconds: float = 20.0
    ) -> Job:
        """Call ``work`` (``module:function``) on ``size`` ranks of a gloo group.

        A collective of it may take ``seconds``. ``folder`` is made; ``arguments`` are JSON.
        """
        folder.mkdir(parents=True)
        return self._start(folder, work, size, arguments or {}, seconds, {})

    def start_alone(self, folder: Path, work: str, arguments: dict[str, Any], environment: dict[str, str]) -> Job:
        """Call ``work`` in a process without a group, with more variables in its environment; its log is a pipe."""
        folder.mkdir(parents=True)
        os.mkfifo(folder / "rank-0.log")
        return self._start(folder, work, 1, arguments, None, environment)

    def _start(
        self,
        folder: Path,
        work: str,
        size: int,
        arguments: dict[str, Any],
        seconds: float | None,
        environment: dict[str, str],
    ) -> Job:
        if self.process is None:
            command = [sys.executable, "-m", "tests.distributed.zygote"]
            variables = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.line("ready")
        assert self.process.stdin is not None
        asked = {"work": work, "size": size, "folder": str(folder), "seconds": seconds}
        asked |= {"environment": environment, "arguments": arguments}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        self.running = json.loads(self.line("pids"))
        return Job(self, folder, self.running)

    def run(self, folder: Path, work: str, size: int, arguments: dict[str, Any] | None = None) -> list[Any]:
        """Call ``work`` on ``size`` ranks and return what each returned."""
        return self.start(folder, work, size, arguments).results()

    def line(self, word: str) -> str:
        """Return the rest of the next line, which begins with ``word``."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(word), line
        return line.removeprefix(word).strip()

    def end_jobs(self) -> None:
        """Kill the ranks that a failed test has left."""
        if not self.running:
            return
        for pid in self.running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.line("codes")
        self.running = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.kill()  # its ranks die with it
            self.process.communicate()
