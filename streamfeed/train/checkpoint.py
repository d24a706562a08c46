"""Checkpoint folders: written whole or not at all, and checked before they are trusted.

A checkpoint is written under a temporary name, every file reaches the disk, the manifest (sizes and hashes) comes last,
and a rename makes it visible. What is in the files is the business of :mod:`streamfeed.train.snapshot`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from streamfeed.errors import StateError
from streamfeed.train.atomic import write_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Checkpoint",
    "begin",
    "finish",
    "fresh_name",
    "latest",
    "listed",
    "open_checkpoint",
    "prune",
    "set_aside_after",
]

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{6,})")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: ``path`` is its folder, ``step`` the optimizer steps done."""

    path: Path
    step: int

    def read(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return the parsed JSON file ``name`` of this checkpoint."""
        return json.loads((self.path / name).read_text(encoding="utf-8"))


def open_checkpoint(path: Path) -> Checkpoint:
    """Check every file of a checkpoint against its manifest.

    Raises :class:`~streamfeed.errors.StateError` naming the file that is missing, cut or changed.
    """
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        files, step = dict(manifest["files"]), int(manifest["step"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} is no complete checkpoint: its {_MANIFEST} cannot be read ({error})") from error
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise StateError(f"{path} is no complete checkpoint: {name} is missing")
        if file.stat().st_size != size or _digest(file) != digest:
            raise StateError(f"{path} is damaged: {name} is not the {size} bytes that were written")
    return Checkpoint(path, step)


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint of ``folder``, None where there is none at all.

    Broken ones are passed over with a warning. Raises :class:`~streamfeed.errors.StateError` when all are broken: to
    start over from step 0 must be the user's decision.
    """
    _finish_swaps(folder)
    found = _steps(folder)
    for _, path in found:
        try:
            return open_checkpoint(path)
        except StateError as error:
            _log.warning("checkpoint ignored: %s", error)
    if found:
        raise StateError(f"none of the {len(found)} checkpoints under {folder} is usable; move them away to start over")
    return None


def listed(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints of ``folder``, the oldest first; what is in their files is not checked."""
    return [Checkpoint(path, step) for step, path in reversed(_steps(folder)) if (path / _MANIFEST).is_file()]


def begin(folder: Path, step: int) -> Path:
    """Make the empty folder that the checkpoint of ``step`` is written into; remove what killed writers left."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(".writing-step-*"):
        shutil.rmtree(stale)
    for stale in folder.glob(".removing-step-*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = folder / f".writing-step-{step:06d}"
    temporary.mkdir()
    return temporary


def prune(folder: Path, keep: int) -> list[int]:
    """Remove all but the ``keep`` newest checkpoints; return the steps of those removed.

    A folder loses its name first, so that no kill leaves half a checkpoint that looks whole. What cannot be removed is
    warned of, and tried again with the next checkpoint. What a resume has set aside is the user's to remove.
    """
    removed = []
    for step, path in _steps(folder)[keep:]:
        try:
            shutil.rmtree(path.rename(path.with_name(f".removing-{path.name}")))
        except OSError as error:
            _log.warning("an old checkpoint, %s, cannot be removed: %s", path, error)
        else:
            removed.append(step)
    return removed


def finish(temporary: Path, step: int) -> Checkpoint:
    """Write the manifest, bring all files to the disk, and rename the folder to its final name."""
    files = {str(file.relative_to(temporary)): file for file in sorted(temporary.rglob("*")) if file.is_file()}
    for file in files.values():
        _sync(file)
    listed = {name: (file.stat().st_size, _digest(file)) for name, file in files.items()}
    write_file(temporary / _MANIFEST, json.dumps({"step": step, "files": listed}, indent=1))
    for folder in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
        _sync(folder)
    final = temporary.parent / f"step-{step:06d}"
    old = _set_aside(final) if final.exists() else None  # the same step, before it was known that the data has ended
    temporary.rename(final)
    _sync(final.parent)
    if old is not None:
        shutil.rmtree(old)
    return Checkpoint(final, step)


def _finish_swaps(folder: Path) -> None:
    """Rename what a writer had finished, and set its predecessor of the same step aside for, when it was killed."""
    for temporary in folder.glob(".writing-step-*"):
        final = folder / temporary.name.removeprefix(".writing-")
        with suppress(StateError, OSError):  # not finished, or another rank was quicker
            open_checkpoint(temporary)
            if not final.exists():
                temporary.rename(final)


def set_aside_after(folder: Path, step: int) -> list[Path]:
    """Rename the checkpoints after ``step``: a run resumed from an earlier one leaves that branch.

    Otherwise a later ``--resume latest`` would come back to it. Nothing is deleted. Returns the new names.
    """
    return [_set_aside(path) for number, path in _steps(folder) if number > step]


def fresh_name(folder: Path, stem: str, digits: int = 3) -> Path:
    """Return ``folder/stem-NNN`` with the first number above all that exist."""
    taken = [
        int(path.name.rpartition("-")[2]) for path in folder.glob(f"{stem}-*") if path.name[len(stem) + 1 :].isdigit()
    ]
    return folder / f"{stem}-{max(taken, default=0) + 1:0{digits}d}"


def _steps(folder: Path) -> list[tuple[int, Path]]:
    """List the checkpoint folders by step, the newest first; temporary and set-aside names do not match."""
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir()]
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _set_aside(path: Path) -> Path:
    return path.rename(fresh_name(path.parent, f"replaced-{path.name}", digits=1))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str:
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            state.update(block)
    return state.hexdigest()
