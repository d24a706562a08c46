"""Figures for TensorBoard, W&B and whatever else Accelerate logs to; training does not depend on any of them."""

from __future__ import annotations

import difflib
import json
import logging
import os
import secrets
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import yaml
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, TensorBoardTracker, get_available_trackers
from accelerate.utils import LoggerType

from streamfeed.errors import ConfigError
from streamfeed.train.atomic import write_file
from streamfeed.train.flags import to_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from accelerate import Accelerator

    from streamfeed.train.config import RunConfig
    from streamfeed.train.metrics import Meter

__all__ = ["Guarded", "Trackers", "chosen_names", "make_trackers", "settings_of"]

_log = logging.getLogger(__name__)

_PROJECT = "streamfeed"


def chosen_names(asked: str | list[str]) -> list[str]:
    """Return the names of the trackers that ``train.trackers`` asks for, each once.

    Raises :class:`~streamfeed.errors.ConfigError` for a name that there is not, and for one that is not installed.
    """
    words = asked.split(",") if isinstance(asked, str) else asked
    names = list(dict.fromkeys(word.strip() for word in words if word.strip()))
    here = _installed()
    if names == ["auto"]:
        return [name for name in here if name == "tensorboard"]
    if not names or names == ["none"]:
        return []
    for name in names:
        _check(name, here)
    return here if "all" in names else names


def make_trackers(asked: str | list[str], folder: Path, step: int) -> list[Guarded]:
    """Return the trackers to hand to ``Accelerator(log_with=...)``, for the run in ``folder`` that goes on at ``step``.

    Nothing of their libraries is imported yet. Raises :class:`~streamfeed.errors.ConfigError` as above.
    """
    return [Guarded(name, partial(_build, name, folder, step)) for name in chosen_names(asked)]


def settings_of(config: RunConfig) -> dict[str, bool | int | float | str]:
    """Return what ``config.yaml`` holds, which is without secrets, by dotted name; what is left out is left out."""
    found: dict[str, bool | int | float | str] = {}
    for name, value in _leaves(yaml.safe_load(to_yaml(config))):
        if isinstance(value, bool | int | float | str):
            found[name] = value
        elif value is not None:
            found[name] = json.dumps(value)
    return found


class Trackers:
    """The trackers of a run; they begin with its first figures, so that a run that fails before has left nothing."""

    def __init__(self, accelerator: Accelerator, config: RunConfig) -> None:
        self._accelerator = accelerator
        self._config = config
        self._begun = False

    def log(self, meter: Meter, line: dict[str, Any]) -> None:
        """Hand on the numbers of a line of ``metrics.jsonl``; those of a part of it by dotted name."""
        if not self._begun:
            self._begun = True
            with meter.aside():  # imports and logins are no part of any step
                self._accelerator.init_trackers(_PROJECT, config=settings_of(self._config))
        numbers = {name: value for name, value in _leaves(line) if isinstance(value, int | float) and name != "step"}
        self._accelerator.log(numbers, step=line["step"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Not Accelerator.end_training(): it also destroys the process group, which others may have made.
        for tracker in self._accelerator.trackers:
            tracker.finish()


class Guarded(GeneralTracker):  # type: ignore[misc]  # accelerate has no types that mypy follows
    """One of Accelerate's trackers, made when it starts; at its first failure it is left out, and that is said."""

    requires_logging_directory = False

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name = name
        self._make = make
        self._inner: Any = None
        super().__init__()

    @property
    def tracker(self) -> Any:  # noqa: ANN401 - whatever the library has
        """The library's own object, as ``Accelerator.get_tracker`` gives it; None where there is none."""
        return None if self._inner is None else self._inner.tracker

    def start(self) -> None:
        """Import the library and begin."""
        with self._may_fail(), _bare_command_line():
            self._inner = self._make()
            self._inner.start()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Note the settings."""
        self._ask("store_init_configuration", values)

    def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:  # noqa: ANN401
        """Note the figures of a step."""
        self._ask("log", values, step=step, **options)

    def finish(self) -> None:
        """Write what is left."""
        self._ask("finish")

    def _ask(self, method: str, *arguments: object, **options: Any) -> None:  # noqa: ANN401
        if self._inner is not None:
            with self._may_fail():
                getattr(self._inner, method)(*arguments, **options)

    @contextmanager
    def _may_fail(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a library's own: no network, no login, a full disk
            self._inner = None
            cause = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            _log.warning("the tracker %s failed and gets no more figures (%s); metrics.jsonl has all", self.name, cause)


class _TensorBoard(TensorBoardTracker):  # type: ignore[misc]
    """TensorBoard's, with the settings beside the figures: Accelerate's puts them into two more runs at each start."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer.add_hparams(values, metric_dict={}, run_name=".")
        self.writer.flush()


def _build(name: str, folder: Path, step: int) -> Any:  # noqa: ANN401 - a GeneralTracker
    """Build a tracker in the run folder, there where the run goes on."""
    if name == "tensorboard":
        # What is there of later steps, which are trained again, is no longer shown.
        return _TensorBoard("tensorboard", folder, purge_step=step + 1)
    kind = LOGGER_TYPE_TO_CLASS[name]
    if name == "wandb":
        project = os.environ.get("WANDB_PROJECT", _PROJECT)
        return kind(project, name=folder.name, dir=str(folder), id=_kept_id(folder / "wandb" / "id"), resume="allow")
    return kind(_PROJECT, folder) if kind.requires_logging_directory else kind(_PROJECT)


def _kept_id(path: Path) -> str:
    """Return the id of the run in a tracker's store, the same in every resume."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, secrets.token_hex(4))
    return path.read_text(encoding="utf-8")


@contextmanager
def _bare_command_line() -> Iterator[None]:
    """Hide the arguments of the process, which some libraries send along: they may hold keys."""
    whole = sys.argv
    sys.argv = whole[:1]
    try:
        yield
    finally:
        sys.argv = whole


def _installed() -> list[str]:
    """Return what can be used here, among it what was registered with Accelerate."""
    found = {str(one) for one in get_available_trackers()}
    return [name for name in LOGGER_TYPE_TO_CLASS if name in found or name not in LoggerType.list()]


def _check(name: str, here: list[str]) -> None:
    words = ["auto", "none", "all"]
    known = [*words, *LOGGER_TYPE_TO_CLASS]
    installed = ", ".join(here) or "none of them"
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"train.trackers: there is no {name!r}; the nearest is {near} (there are {', '.join(known)}; "
            f"installed here: {installed})"
        )
    if name in words[:2]:
        raise ConfigError(f"train.trackers: {name} stands alone; leave it out, or the other names")
    if name != "all" and name not in here:
        raise ConfigError(f"train.trackers: {name} is not installed; installed here: {installed}")


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
