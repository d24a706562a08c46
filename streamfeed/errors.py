"""Every error that streamfeed raises, in one tree.

::

    StreamfeedError
    ├── ConfigError           a setting that cannot work, found before any data is read
    ├── SourceError           a URI or pattern that resolves to nothing usable
    ├── ShardError            one shard; names it, the place in it, the cause, what to do
    │   ├── ReadError         the store failed: never skipped, the bytes prove nothing
    │   ├── CorruptShardError the bytes prove that the shard is broken from here on
    │   ├── FieldError        the shard has no such field, or one of the wrong type
    │   └── RecordError       one record is bad; its neighbours are fine
    ├── BudgetError           more bad records than ``on_error="skip"`` may pass over
    ├── EmptyStreamError      a whole epoch without a row
    ├── EngineError           a tokenizer engine gave other ids than Hugging Face
    ├── MapError              the user's own function failed, or returned what is no record
    ├── StateError            a state that does not fit this stream
    │   └── ReplayError       the bytes read again are not those of the first reading
    ├── WorkerError           a worker process died, or raised
    └── RankError             another rank ended, failed, or stopped taking batches

All of them survive pickling between processes with their attributes.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BudgetError",
    "ConfigError",
    "CorruptShardError",
    "EmptyStreamError",
    "EngineError",
    "FieldError",
    "MapError",
    "RankError",
    "ReadError",
    "RecordError",
    "ReplayError",
    "ShardError",
    "SourceError",
    "StateError",
    "StreamfeedError",
    "WorkerError",
]


def _rebuild(cls: type[StreamfeedError], args: tuple[Any, ...], attributes: dict[str, Any]) -> StreamfeedError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class StreamfeedError(Exception):
    """Base of every error that streamfeed raises on purpose.

    ``told_to_all``: whether all ranks of the run raise it, so that one of them says it for all.
    """

    told_to_all = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(StreamfeedError, ValueError):
    """A setting that cannot work; raised before any data is read."""


class SourceError(StreamfeedError, ValueError):
    """A URI, pattern or list of them that resolves to nothing usable."""


class ShardError(StreamfeedError):
    """Something is wrong with one shard.

    ``shard`` is its redacted URL, ``where`` the place in it ("record 12", "byte 4096", or empty for the whole shard),
    ``cause`` what was found, ``advice`` what to do.
    """

    def __init__(self, shard: str, where: str, cause: str, advice: str = "") -> None:
        place = f"{shard}, {where}" if where else shard
        super().__init__(f"{place}: {cause}" + (f"; {advice}" if advice else ""))
        self.shard = shard
        self.where = where
        self.cause = cause
        self.advice = advice


class ReadError(ShardError):
    """The store failed to deliver bytes; they prove nothing, so this is never skipped."""


class CorruptShardError(ShardError):
    """The bytes prove that the shard is broken from here on (truncated, damaged, not of its format)."""


class FieldError(ShardError):
    """The shard has no such field, or one that cannot hold text."""


class RecordError(ShardError):
    """One record is bad; the records around it are fine."""


class BudgetError(StreamfeedError):
    """More bad records than ``on_error="skip"`` may pass over."""


class EmptyStreamError(StreamfeedError):
    """A whole epoch of a lane, or of the run, gave no row."""


class EngineError(StreamfeedError):
    """A tokenizer engine gave other ids than Hugging Face, or cannot run."""


class MapError(StreamfeedError):
    """The user's own function raised, or returned what the objective cannot take; never skipped."""


class StateError(StreamfeedError, ValueError):
    """A state that does not fit: another stream, missing lanes, unequal positions, damaged."""


class ReplayError(StateError):
    """The bytes read again on resume are not those that were read first."""


class RankError(StreamfeedError, RuntimeError):
    """Another rank of the job ended, failed, or stopped taking batches; its own message says why."""

    told_to_all = True


class WorkerError(StreamfeedError, RuntimeError):
    """A worker process died, or raised; ``details`` holds its traceback as text."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(f"{message}\n{details}" if details else message)
        self.details = details
