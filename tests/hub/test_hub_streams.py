"""Streams from the Hub: coverage, topology and resume, over our readers and over those of `datasets`."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamLoader
from tests.corpora import FIELDS, id_of
from tests.servers.hub import TOKEN, Fault, Hub
from tests.streams import CACHE, Batches, Run, corpus, documents, equal, global_rows, stream, take

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfeed import StreamConfig

pytestmark = pytest.mark.usefixtures("one_engine")

OURS = ("parquet", "jsonl.zst", "tar")
THEIRS = ("field", "zip")
REPO = "org/corpus"
README = "---\nconfigs:\n- config_name: default\n  data_files: data/*.json\n  field: rows\n---\n"


def published(hub: Hub, folder: Path, kind: str, shards: Sequence[int], *, words: int = 12) -> list[str]:
    """Write a corpus and put it on the Hub as dataset ``org/corpus``; return its texts."""
    texts = corpus(folder, kind if kind in OURS else "jsonl", shards, words=words)
    files = {f"data/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}
    if kind in THEIRS:
        files = {
            f"data/{index:03}.{_packed(kind)[0]}": _packed(kind)[1](data) for index, data in enumerate(files.values())
        }
    hub.repo(REPO, {"README.md": README if kind == "field" else "# A corpus\n", **files}, large=100)
    return texts


def _packed(kind: str) -> Any:
    return ("json", _by_field) if kind == "field" else ("zip", _zipped)


def _by_field(lines: bytes) -> bytes:
    return json.dumps({"rows": [json.loads(line) for line in lines.splitlines()]}).encode()


def _zipped(lines: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("part.jsonl", lines)
    return made.getvalue()


def over_hub(base: StreamConfig, kind: str, uri: str = f"hf://datasets/{REPO}", **options: Any) -> StreamConfig:
    return replace(base, sources=[Source(uri, text=FIELDS.get(kind, "text"), **options)])


@pytest.mark.parametrize("kind", [*OURS, *THEIRS])
def test_an_epoch_hands_out_every_document_once(kind: str, hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    texts = published(hub, tmp_path, kind, [9, 14, 5])
    for ranks, workers, lanes in [(1, 0, 1), (2, 2, 6), (3, 1, 6)]:
        config = over_hub(stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=lanes), kind)
        per_rank = Run.start(config, ranks, 2, workers).take()
        found = tokenizer.batch_decode(documents(per_rank, lanes, tokenizer.eos_token_id))
        assert Counter(map(id_of, found)) == Counter(range(len(texts))), (ranks, workers, lanes)
        assert sorted(found) == sorted(texts)


@pytest.mark.parametrize("kind", OURS)
def test_the_rows_are_those_of_the_same_files_on_a_disk(kind: str, hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    published(hub, tmp_path, kind, [20, 13, 16], words=40)
    local = stream(tmp_path, kind, tokenizer, lanes=3)
    ours = take(Run.start(local, 1, 2).loaders[0], 25)
    for uri in (f"hf://datasets/{REPO}", f"hf://datasets/{REPO}/data/*.{kind}", f"hf://datasets/{REPO}@main/data"):
        assert equal(take(Run.start(over_hub(local, kind, uri), 1, 2).loaders[0], 25), ours), uri


@pytest.mark.parametrize("kind", [*OURS, *THEIRS])
def test_every_topology_gives_the_same_rows_across_a_resume(
    kind: str, hub: Hub, tmp_path: Path, tokenizer: Any
) -> None:
    published(hub, tmp_path, kind, [15, 8, 12], words=40)
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=6), kind)
    reference = global_rows(Run.start(config, 1, 1).take(70))
    state: dict[str, Any] | None = None
    after = 0
    for ranks, workers, batch_size, batches in [(3, 0, 1, 5), (2, 1, 3, 3), (1, 2, 5, 2), (4, 2, 2, 1)]:
        run = Run.start(config, ranks, batch_size, workers, state)
        rows = global_rows(run.take(batches), after)
        assert rows == {g: reference[g] for g in range(after, after + ranks * batch_size * batches)}
        state = run.state()
        after = state["rows"]


@pytest.mark.parametrize("kind", [*OURS, *THEIRS])
def test_resumes_exactly_at_every_batch(kind: str, hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    published(hub, tmp_path, kind, [14, 9, 11], words=40)
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=3, shuffle_buffer=15), kind)
    run = Run.start(config, 1, 2, 2)
    whole: Batches = []
    states = [run.state()]
    for _ in range(18 if kind in OURS else 9):
        whole += take(run.loaders[0], 1)
        states.append(run.state())
    for taken, state in enumerate(states[:-1]):
        rest = whole[taken : taken + 5]
        assert equal(take(Run.start(config, 1, 2, 2, state).loaders[0], len(rest)), rest), f"resumed behind {taken}"


def test_a_branch_that_moves_while_a_run_reads_changes_nothing(hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    published(hub, tmp_path, "parquet", [20, 13, 16], words=40)
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=3), "parquet")
    whole = take(Run.start(config, 1, 2).loaders[0], 30)
    run = Run.start(config, 1, 2)
    found = take(run.loaders[0], 1)
    published_again = {f"data/{index:03}.parquet": b"something else" for index in range(3)}
    hub.repos[REPO].commit({**published_again, "data/003.parquet": b"more"})
    assert equal(found + take(run.loaders[0], 29), whole)


def test_another_commit_with_the_same_files_resumes_and_one_with_others_does_not(
    hub: Hub, tmp_path: Path, tokenizer: Any
) -> None:
    from streamfeed.errors import StateError

    published(hub, tmp_path, "jsonl.zst", [20, 13, 16], words=40)
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=3), "jsonl.zst")
    run = Run.start(config, 1, 2)
    whole = take(run.loaders[0], 12)
    state = run.state(5)
    hub.repos[REPO].commit({"notes.md": "nothing to read"})
    assert equal(take(Run.start(config, 1, 2, state=state).loaders[0], 7), whole[5:])
    hub.repos[REPO].commit({"data/003.jsonl.zst": b"x"})
    with pytest.raises(StateError, match="shards"):
        take(Run.start(config, 1, 2, state=state).loaders[0], 1)


def test_listing_costs_the_same_for_any_number_of_workers(hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    counts = []
    published(hub, tmp_path, "parquet", [20, 13, 16])
    for workers in (0, 1, 4):
        hub.log.clear()
        config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=4, epochs=1), "parquet")
        Run.start(config, 1, 2, workers).take()
        counts.append({kind: hub.count(kind) for kind in ("info", "tree", "paths-info", "other")})
    assert counts == [{"info": 1, "tree": 1, "paths-info": 0, "other": 0}] * 3


def test_a_private_dataset_is_streamed_with_its_token_which_is_kept_out_of_states(
    hub: Hub, tmp_path: Path, tokenizer: Any
) -> None:
    texts = published(hub, tmp_path, "tar", [9, 14])
    hub.repos[REPO].private = True
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=2), "tar", storage_options={"token": TOKEN})
    run = Run.start(config, 1, 2)
    found = documents(run.take(), 2, tokenizer.eos_token_id)
    assert sorted(tokenizer.batch_decode(found)) == sorted(texts)
    assert TOKEN not in json.dumps(run.state())
    assert TOKEN not in repr(config)


@pytest.mark.parametrize("kind", ["parquet", "jsonl.zst"])
def test_faults_of_the_hub_while_reading_change_no_row(kind: str, hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    published(hub, tmp_path, kind, [20, 13, 16], words=40)
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=3), kind)
    whole = take(Run.start(config, 1, 2).loaders[0], 20)
    hub.faults = [
        Fault("resolve", 429, times=1, after=1, part="data/", headers={"Retry-After": "0"}),
        Fault("large", 503, times=1),
        Fault("tree", 500, times=1),
    ]
    assert equal(take(Run.start(config, 1, 2).loaders[0], 20), whole)
    assert not any(fault.times for fault in hub.faults)


def test_configs_and_splits_are_streams_of_their_own(hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    readme = (
        "---\nconfigs:\n- config_name: a\n  default: true\n  data_files:\n  - split: train\n    path: a/*\n"
        "  - split: test\n    path: t/*\n- config_name: b\n  data_files: b/*\n---\n"
    )
    lines = {name: "".join(json.dumps({"text": f"{name} {i}"}) + "\n" for i in range(5)) for name in "abt"}
    hub.repo(REPO, {"README.md": readme, **{f"{name}/1.jsonl": text for name, text in lines.items()}})
    base = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=1, shuffle_buffer=0)
    prints = set()
    for options, name in [({}, "a"), ({"config": "b"}, "b"), ({"split": "test"}, "t"), ({"config": "a"}, "a")]:
        run = Run.start(over_hub(base, "jsonl", **options), 1, 2)
        found = tokenizer.batch_decode(documents(run.take(), 1, tokenizer.eos_token_id))
        assert found == [f"{name} {i}" for i in range(5)]
        prints.add(json.dumps(run.state()["fingerprint"], sort_keys=True))
    assert len(prints) == 3


def test_text_files_of_a_dataset_are_a_document_a_line_as_datasets_reads_them(
    hub: Hub, tmp_path: Path, tokenizer: Any
) -> None:
    hub.repo(REPO, {"train.txt": "one\ntwo\n\nthree\n"})
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=1, shuffle_buffer=0), "jsonl")
    found = documents(Run.start(config, 1, 2).take(), 1, tokenizer.eos_token_id)
    assert tokenizer.batch_decode(found) == ["one", "two", "three"]


def test_an_array_in_a_json_file_is_read_by_datasets(hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    hub.repo(REPO, {"train.json": json.dumps([{"text": f"text {i}"} for i in range(4)])})
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=1, shuffle_buffer=0), "jsonl")
    found = documents(Run.start(config, 1, 2).take(), 1, tokenizer.eos_token_id)
    assert tokenizer.batch_decode(found) == [f"text {i}" for i in range(4)]


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["jsonl.zst", "field"])
def test_worker_processes_read_what_the_parent_listed(kind: str, hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    published(hub, tmp_path, kind, [20, 13, 16], words=40)
    config = over_hub(stream(tmp_path, "jsonl", tokenizer, lanes=4), kind)
    whole = take(Run.start(config, 1, 2).loaders[0], 8)
    infos = hub.count("info")
    loader = StreamLoader(config, 2, num_workers=2, rank=0, world_size=1, cache_dir=CACHE)
    found = take(loader, 8)
    loader.close()
    assert equal(found, whole)
    if kind in OURS:
        assert hub.count("info") == infos + 1
