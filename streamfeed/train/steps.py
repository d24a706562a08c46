"""Which rows of the stream the steps of a run were trained on, from what its checkpoints say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamfeed.errors import ConfigError, StateError
from streamfeed.train.checkpoint import listed
from streamfeed.train.snapshot import Position, ranks_of, read_position

if TYPE_CHECKING:
    from streamfeed.train.checkpoint import Checkpoint
    from streamfeed.train.config import RunConfig
    from streamfeed.train.folders import RunFolder

__all__ = ["Stretch", "steps_of"]


@dataclass(frozen=True)
class Stretch:
    """Steps that follow each other without a break: those behind ``step``, up to and with ``last`` (None: open).

    ``state`` is the stream's before them, None at its beginning, and ``rows`` of the stream are in it; the next step
    begins with row ``first``: others were stepped over. ``batch`` rows are a step's. ``ranks`` trained on them, None
    where no later checkpoint says so. ``checkpoint`` is where it begins, ``end`` the row it ends before
    where that is known. ``problem`` says why nobody knows the rows.
    """

    step: int
    last: int | None
    state: dict[str, Any] | None
    first: int
    batch: int
    ranks: int | None
    checkpoint: Checkpoint | None
    end: int | None = None
    problem: str = ""

    def rows(self, step: int) -> range:
        """Return the rows of ``step``; a finite stream may end before the last of them.

        Raises :class:`~streamfeed.errors.StateError` where there is a ``problem``.
        """
        if self.problem:
            raise StateError(self.problem)
        begin = self.first + (step - self.step - 1) * self.batch
        return range(begin, begin + self.batch if self.end is None else min(begin + self.batch, self.end))


@dataclass(frozen=True)
class _Mark:
    """A checkpoint, or the beginning."""

    checkpoint: Checkpoint | None
    position: Position
    state: dict[str, Any] | None

    @property
    def rows(self) -> int:
        return 0 if self.state is None else int(self.state["rows"])


def steps_of(run: RunFolder, config: RunConfig) -> list[Stretch]:
    """Return the stretches of steps between the checkpoints of ``run``, in order; the last one may be open.

    Raises :class:`~streamfeed.errors.ConfigError` where there is no such run, and
    :class:`~streamfeed.errors.StateError` where a checkpoint cannot be read.
    """
    if not run.config.is_file():
        raise ConfigError(f"{run.path} is no run folder: it has no {run.config.name}")
    saved = [_Mark(one, *read_position(one)) for one in listed(run.checkpoints) if one.step]
    marks = [_Mark(None, Position(), None), *saved]
    batch = marks[-1].position.global_batch_size or config.train.global_batch_size
    if batch is None:
        raise ConfigError(f"{run.config} does not say train.global_batch_size; was it written by a run?")
    found = [_between(run, begin, end, batch, config) for begin, end in zip(marks, [*marks[1:], None], strict=True)]
    return found[:-1] if marks[-1].position.ended else found


def _between(run: RunFolder, begin: _Mark, end: _Mark | None, batch: int, config: RunConfig) -> Stretch:
    """Return the stretch from one mark to the next: rows are stepped over only where a run starts, at its beginning."""
    if end is None:
        skipped, problem = max(0, config.train.skip_rows - begin.position.skipped_rows), ""
    else:
        skipped = end.position.skipped_rows - begin.position.skipped_rows
        problem = _problem(begin, end, batch, skipped, pruned=config.train.keep_checkpoints > 0)
    return Stretch(
        step=begin.position.step,
        last=None if end is None else end.position.step,
        state=begin.state,
        first=begin.rows + skipped,
        batch=batch,
        ranks=None if end is None or end.checkpoint is None else ranks_of(end.checkpoint),
        checkpoint=begin.checkpoint,
        end=None if end is None else end.rows,
        problem=problem and f"{run.path}: {problem}",
    )


def _problem(begin: _Mark, end: _Mark, batch: int, skipped: int, *, pruned: bool) -> str:
    steps = end.position.step - begin.position.step
    rows = end.rows - begin.rows - steps * batch
    between = f"between steps {begin.position.step} and {end.position.step}"
    if not (rows == skipped or (end.position.ended and skipped - batch < rows < skipped)):
        return (
            f"{between} the stream moved {end.rows - begin.rows:,} rows, which are not {steps:,} steps of {batch} and "
            f"{skipped:,} rows stepped over; are the checkpoints of one run?"
        )
    if skipped and begin.checkpoint is None and pruned:
        return (
            f"{between} {skipped:,} rows were stepped over, and the checkpoints that could say where are gone "
            "(train.keep_checkpoints); later steps can be traced"
        )
    return ""
