"""Which run folder a run writes to, and which checkpoint it starts from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamfeed.errors import ConfigError
from streamfeed.train.checkpoint import Checkpoint, fresh_name, latest, open_checkpoint

__all__ = ["RUNS", "Resume", "RunFolder", "find_resume", "new_folder"]

RUNS = Path("runs")


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved settings; works as ``--config``."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON line a logged step."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The figures of the whole run."""
        return self.path / "summary.json"

    def profile(self, rank: int) -> Path:
        """Return the file of what the data pipeline of a rank did when."""
        return self.path / ("profile.json" if rank == 0 else f"profile-rank-{rank}.json")

    @property
    def checkpoints(self) -> Path:
        """The folder of ``step-NNNNNN`` folders."""
        return self.path / "checkpoints"


@dataclass(frozen=True)
class Resume:
    """Where ``--resume`` leads: a run folder and a checkpoint, None where the run was killed before its first."""

    run: RunFolder
    checkpoint: Checkpoint | None


def find_resume(resume: str, output_dir: str | None) -> Resume:
    """Resolve ``latest``, a run folder or a checkpoint folder.

    Raises :class:`~streamfeed.errors.ConfigError` where there is no such run, and
    :class:`~streamfeed.errors.StateError` where its checkpoints are all broken.
    """
    if resume == "latest":
        run = RunFolder(Path(output_dir)) if output_dir else _newest_run()
        return Resume(run, latest(run.checkpoints))
    path = Path(resume)
    if (path / "manifest.json").exists() or path.parent.name == "checkpoints":
        return Resume(RunFolder(path.absolute().parent.parent), open_checkpoint(path))
    run = RunFolder(path)
    if not (run.config.exists() or run.checkpoints.is_dir()):
        raise ConfigError(f"--resume {resume}: neither a run folder nor a checkpoint; give one, or 'latest'")
    return Resume(run, latest(run.checkpoints))


def new_folder(output_dir: str | None, stem: str) -> RunFolder:
    """Return the folder of a new run: ``output_dir``, or a fresh ``runs/STEM-NNN``; it is not made yet.

    Raises :class:`~streamfeed.errors.ConfigError` where ``output_dir`` already holds something.
    """
    if output_dir is None:
        return RunFolder(fresh_name(RUNS, stem))
    path = Path(output_dir)
    if path.exists() and not _without_progress(path):
        raise ConfigError(
            f"train.output_dir {output_dir} is not empty; add --resume latest to continue that run, or name another"
        )
    return RunFolder(path)


def _without_progress(path: Path) -> bool:
    """Whether a folder is empty, or holds a run that failed before its first step."""
    if not path.is_dir():
        return False
    run = RunFolder(path)
    return all(file == run.config or (file == run.metrics and file.stat().st_size == 0) for file in path.iterdir())


def _newest_run() -> RunFolder:
    runs = [RunFolder(path) for path in RUNS.iterdir()] if RUNS.is_dir() else []
    started = [run for run in runs if run.config.exists()]
    if not started:
        raise ConfigError(f"--resume latest: there is no run under {RUNS}/; name one with --train.output_dir")
    return max(started, key=lambda run: run.config.stat().st_mtime_ns)
