"""A user's own function in real workers: also one of the user's script, which workers do not import."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Map, Source, StreamConfig, StreamDataset
from streamfeed.errors import ConfigError, EmptyStreamError, MapError
from streamfeed.objectives import PromptCompletion
from tests.corpora import write_records
from tests.streams import CACHE, InProcessLoader, take

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

pytestmark = pytest.mark.usefixtures("one_engine")

SCRIPT = """
    import json, sys
    from pathlib import Path
    from streamfeed import Map, Source, StreamConfig, StreamLoader

    GREETING = "hello"

    def greet(record, draw):
        return {"text": f"{GREETING} {record['name']} {draw.integers(10**6)}"}

    if __name__ == "__main__":
        folder, tokenizer, cache, method = sys.argv[1:]
        source = Source(folder, map=Map(greet), fields=["name"])
        config = StreamConfig([source], tokenizer, seq_len=16, packing="none", epochs=1, lanes=2)
        rows = []
        for workers in (0, 2):
            options = {"start_method": method} if workers else {}
            loader = StreamLoader(config, 4, num_workers=workers, cache_dir=Path(cache), **options)
            rows.append([row[:mask.sum()].tolist() for batch in loader for row, mask in
                         zip(batch["input_ids"], batch["attention_mask"])])
            loader.close()
        print(json.dumps(rows))
"""


def shards(folder: Path, count: int = 24) -> Path:
    write_records("jsonl", folder / "0.jsonl", [{"name": f"n{i}", "text": f"text {i}"} for i in range(count)])
    return folder


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_function_of_the_users_script_runs_in_workers_however_they_start(
    tmp_path: Path, tokenizer_folder: Path, tokenizer: PreTrainedTokenizerBase, method: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    arguments = [str(shards(tmp_path / "data")), str(tokenizer_folder), str(CACHE), method]
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=True)
    here, there = json.loads(done.stdout)
    assert here == there
    texts = [tokenizer.decode(row) for row in here]
    assert sorted(text.split()[1] for text in texts) == sorted(f"n{i}" for i in range(24))
    assert len({text.split()[2] for text in texts}) > 20  # each record has a generator of its own


def config_of(folder: Path, tokenizer: Any, function: Any, **changes: Any) -> StreamConfig:
    return StreamConfig([Source(str(folder), map=function, **changes)], tokenizer, seq_len=16, epochs=1)


def fails(record: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(record["text"])


def number(record: dict[str, Any]) -> dict[str, Any]:
    return {"text": len(record)}


def nameless(record: dict[str, Any]) -> dict[str, Any]:
    return {"body": record["text"]}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fails, r"the map function .*\.fails raised KeyError: 'text \d"),
        (number, r"number returned what the objective cannot take: field 'text' is a number, not a string"),
        (nameless, r"nameless returned what the objective cannot take: there is no field 'text'; .*present: body"),
        (Map(number, batched=True), "number is batched and returned dict, not a list"),
    ],
)
def test_a_function_that_fails_or_returns_no_record_is_an_error_that_names_it_also_where_bad_records_are_skipped(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, function: Any, message: str
) -> None:
    config = dataclasses.replace(config_of(shards(tmp_path), tokenizer, function), on_error="skip")
    with pytest.raises(MapError, match=message):
        take(InProcessLoader(config, 2, cache_dir=CACHE))


def test_a_function_that_cannot_be_sent_is_refused_with_advice(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    import threading

    lock = threading.Lock()

    def locked(record: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return record

    with pytest.raises(ConfigError, match="locked cannot be sent to workers"):
        InProcessLoader(config_of(shards(tmp_path), tokenizer, locked), 2, cache_dir=CACHE)


def nothing(record: dict[str, Any]) -> None:
    assert record["text"]


@pytest.mark.parametrize(("epochs", "message"), [(None, "documents that lane 0 read in epoch 0: 24"), (1, "read, 24")])
def test_a_function_that_drops_everything_is_said_to_have(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, epochs: int | None, message: str
) -> None:
    config = dataclasses.replace(config_of(shards(tmp_path), tokenizer, nothing), epochs=epochs)
    with pytest.raises(EmptyStreamError, match=message + " dropped by map"):
        take(InProcessLoader(config, 2, cache_dir=CACHE))


@pytest.mark.parametrize("fields", [[], ["text", "text"], ["a."], [""], [1], "text"])
def test_fields_are_names_each_once(fields: Any) -> None:
    with pytest.raises(ConfigError, match="fields is a list of names"):
        Source("shards", map=same, fields=fields)


def test_what_plain_text_lacks_a_function_makes_of_its_text(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "0.txt").write_text("hello")
    config = config_of(tmp_path, tokenizer, greeted)
    with pytest.raises(ConfigError, match=r"none is called 'prompt': a map function can make it of fields=\['text'\]"):
        InProcessLoader(dataclasses.replace(config, objective=PromptCompletion()), 2, cache_dir=CACHE)
    (source,) = config_of(tmp_path, tokenizer, greeted, fields=["text"]).sources
    config = dataclasses.replace(config, sources=[source], objective=PromptCompletion())
    (batch,) = take(InProcessLoader(config, 1, cache_dir=CACHE))
    assert tokenizer.decode(batch["input_ids"][0]).startswith("hello there")


def greeted(record: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": record["text"], "completion": " there"}


def same(record: dict[str, Any]) -> dict[str, Any]:
    return record


def test_a_state_of_another_function_or_version_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    from streamfeed.errors import StateError

    folder = shards(tmp_path)
    state = InProcessLoader(config_of(folder, tokenizer, same), 2, cache_dir=CACHE).state_dict()
    InProcessLoader(config_of(folder, tokenizer, Map(same)), 2, cache_dir=CACHE).load_state_dict(state)
    for other in (nameless, Map(same, version="2"), Map(same, batched=True), None):
        with pytest.raises(StateError, match=r"sources\[0\]\.map"):
            InProcessLoader(config_of(folder, tokenizer, other), 2, cache_dir=CACHE).load_state_dict(state)


def test_a_function_that_changes_nothing_gives_the_rows_of_no_function(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    folder = shards(tmp_path)
    rows = [
        [
            batch["input_ids"].tolist()
            for batch in take(InProcessLoader(config_of(folder, tokenizer, one), 2, cache_dir=CACHE))
        ]
        for one in (None, same)
    ]
    assert rows[0] == rows[1]


def test_a_stream_dataset_of_samples_collates_to_padded_batches(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    from torch.utils.data import DataLoader

    config = dataclasses.replace(config_of(shards(tmp_path), tokenizer, None), packing="none")
    dataset = StreamDataset(config, cache_dir=CACHE)
    theirs = list(DataLoader(dataset, batch_size=5, collate_fn=dataset.collate))
    ours = take(InProcessLoader(config, 5, cache_dir=CACHE))
    assert len(theirs) == len(ours) == 5
    for one, other in zip(theirs, ours, strict=True):
        rows = one["input_ids"].shape[0]
        assert one.keys() == other.keys()
        assert all((one[name].numpy() == other[name][:rows]).all() for name in one)
