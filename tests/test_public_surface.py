"""The public surface: what can be imported, what that costs, and errors that keep what they say between processes."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import streamfeed
from streamfeed import errors


def modules_behind(statement: str) -> set[str]:
    """Return the top-level modules that a fresh process has loaded after ``statement``."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = modules_behind("import streamfeed; dir(streamfeed); streamfeed.__all__")
    assert "streamfeed" in loaded
    assert not loaded & {"torch", "numpy", "pyarrow", "transformers", "tokenizers", "fsspec", "orjson"}


def test_a_config_is_made_without_torch() -> None:
    loaded = modules_behind("from streamfeed import Source, StreamConfig, StreamfeedError, merge_states; Source('a')")
    assert not loaded & {"torch", "transformers"}


def test_a_worker_starts_without_torch_and_transformers() -> None:
    loaded = modules_behind("import streamfeed.loader.fork_server")
    assert {"pyarrow", "tokenizers"} <= loaded, "what all workers use is loaded once for all of them"
    assert not loaded & {"torch", "transformers"}


def test_a_trainer_that_starts_workers_does_without_what_they_read_with() -> None:
    loaded = modules_behind("import streamfeed.loader.loader")
    assert "torch" in loaded
    assert not loaded & {"pyarrow", "tokenizers", "transformers", "fsspec", "aiohttp"}


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in streamfeed.__all__:
        assert getattr(streamfeed, name).__name__ == name
        assert name in dir(streamfeed)
    assert sorted(streamfeed.__all__) == streamfeed.__all__ or set(streamfeed.__all__) == set(streamfeed._HOMES)
    assert {"Source", "StreamConfig", "StreamDataset", "StreamLoader", "StreamfeedError", "merge_states"} <= set(
        streamfeed.__all__
    )


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'streamfeed' has no attribute 'Loader'"):
        streamfeed.Loader  # noqa: B018
    with pytest.raises(ImportError):
        exec("from streamfeed import Loader")


def tree(root: type[errors.StreamfeedError]) -> list[type[errors.StreamfeedError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


CLASSES = [cls for cls in tree(errors.StreamfeedError) if cls.__module__.startswith("streamfeed.")]


def test_the_tree_is_what_the_module_exports() -> None:
    assert sorted({cls.__name__ for cls in CLASSES}) == sorted(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_an_error_keeps_its_message_and_attributes_between_processes(
    cls: type[errors.StreamfeedError], protocol: int
) -> None:
    if issubclass(cls, errors.ShardError):
        error: errors.StreamfeedError = cls("s3://bucket/a.jsonl", "byte 12", "is damaged", "copy it again")
    elif issubclass(cls, errors.WorkerError):
        error = cls("worker 3 died", "Traceback ...")
    else:
        error = cls("what happened")
    error.add_note("raised in worker 3")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is cls
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)
    assert again.__notes__ == ["raised in worker 3"]


def test_a_shard_error_says_shard_place_cause_and_advice() -> None:
    error = errors.RecordError("a.jsonl", "byte 12", "is damaged", "mend it")
    assert str(error) == "a.jsonl, byte 12: is damaged; mend it"
    assert str(errors.ReadError("a.jsonl", "", "is gone")) == "a.jsonl: is gone"
    assert (error.shard, error.where, error.cause, error.advice) == ("a.jsonl", "byte 12", "is damaged", "mend it")


@pytest.mark.parametrize(
    ("cls", "also"),
    [
        (errors.ConfigError, ValueError),
        (errors.SourceError, ValueError),
        (errors.StateError, ValueError),
        (errors.WorkerError, RuntimeError),
        (errors.ReplayError, errors.StateError),
        (errors.RecordError, errors.ShardError),
    ],
)
def test_errors_are_also_what_python_calls_them(cls: type[Exception], also: type[Exception]) -> None:
    assert issubclass(cls, also)
