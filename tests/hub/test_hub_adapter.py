"""What only `datasets` can read: every example once, from any cursor, and nothing of other shards."""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.errors import CorruptShardError, FieldError, ReadError
from streamfeed.formats.hub import HubShards
from streamfeed.formats.hub_shards import our_readers, shards_by_datasets
from streamfeed.formats.protocol import WHOLE, Bad, Cursor
from streamfeed.formats.recipe import Recipe
from streamfeed.storage.files import ShardFile
from streamfeed.storage.hub.rules import Chosen
from streamfeed.storage.store import Store
from tests.reading import OptionsAlone, values_in
from tests.servers.hub import TOKEN, Hub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfeed.formats.protocol import Value
    from streamfeed.storage.listing import Listing

FIELD_README = "---\nconfigs:\n- config_name: default\n  data_files: '*.json'\n  field: rows\n---\n"
SIZES = (150, 1, 83)
START = Cursor()


def texts(shard: int) -> list[str]:
    return [f"id={shard}/{index}; Zürich" for index in range(SIZES[shard])]


def by_field(shard: int) -> str:
    return json.dumps({"rows": [{"text": text, "n": 1} for text in texts(shard)]})


def zipped(shard: int) -> bytes:
    """Two files of JSON Lines in an archive, more than one table of them."""
    made = io.BytesIO()
    half = len(texts(shard)) // 2
    with zipfile.ZipFile(made, "w") as archive:
        for name, some in (("a.jsonl", texts(shard)[:half]), ("b.jsonl", texts(shard)[half:])):
            archive.writestr(name, "".join(json.dumps({"text": text}) + "\n" for text in some))
    return made.getvalue()


CORPORA: dict[str, dict[str, bytes | str]] = {
    "field": {"README.md": FIELD_README, **{f"{i}.json": by_field(i) for i in range(3)}},
    "zip": {f"part-{i}.zip": zipped(i) for i in range(3)},
}


@dataclass
class Shards:
    """What a dataset on the Hub became."""

    listing: Listing
    kind: str


def listed(**options: Any) -> Shards:
    store = Store(options)
    return Shards(*shards_by_datasets(store.list(["hf://datasets/org/odd"]).datasets[0], options))


def shards(hub: Hub, files: Mapping[str, bytes | str], **options: Any) -> Shards:
    hub.repo("org/odd", files, private="token" in options)
    return listed(**options)


def file_of(found: Shards, index: int, **options: Any) -> ShardFile:
    return ShardFile(found.listing.urls[index], found.listing.sizes[index], edge=OptionsAlone(options))


def values(found: Shards, index: int, cursor: Cursor = START, text: str = "text", **options: Any) -> list[Value]:
    reader = HubShards(Recipe.parse(found.kind), text)
    return values_in(reader.read(file_of(found, index, **options), WHOLE, cursor))


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_unit_is_a_shard_of_datasets_and_every_example_comes_once(hub: Hub, corpus: str) -> None:
    found = shards(hub, CORPORA[corpus])
    assert len(found.listing.urls) == 3
    assert [values(found, index) for index in range(3)] == [texts(index) for index in range(3)]


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_cursor_is_exact(hub: Hub, corpus: str) -> None:
    found = shards(hub, CORPORA[corpus])
    whole = texts(0)
    for skip in (0, 1, 63, 64, 65, 74, 75, 76, 128, 149, 150):
        assert values(found, 0, Cursor(0, skip)) == whole[skip:], skip


@pytest.mark.parametrize("corpus", CORPORA)
def test_chunks_stand_at_their_cursors(hub: Hub, corpus: str) -> None:
    found = shards(hub, CORPORA[corpus])
    chunks = list(HubShards(Recipe.parse(found.kind), "text").read(file_of(found, 0), WHOLE, Cursor(0, 10)))
    assert len(chunks) > 1
    at = 10
    for chunk in chunks:
        assert (chunk.seek, chunk.skip) == (0, at)
        at += len(chunk.values)
    assert at == SIZES[0]


def test_reading_from_a_cursor_touches_no_other_shard(hub: Hub) -> None:
    found = shards(hub, CORPORA["field"])
    hub.log.clear()
    assert values(found, 2, Cursor(0, 80)) == texts(2)[80:]
    read = {re.sub(".*/", "", one.path) for one in hub.log if one.kind in {"resolve", "large"} and one.method == "GET"}
    assert read == {"2.json"}


def test_names_and_kind_are_the_same_for_every_commit(hub: Hub) -> None:
    first = shards(hub, CORPORA["field"])
    hub.repos["org/odd"].commit({"notes.md": "later"})
    second = listed()
    assert first.listing.urls != second.listing.urls
    assert (first.listing.names, first.listing.sizes) == (second.listing.names, second.listing.sizes)
    assert first.kind == second.kind
    assert not re.search("[0-9a-f]{40}", first.kind)


def test_a_private_dataset_is_read_with_the_token_of_the_options(hub: Hub) -> None:
    found = shards(hub, CORPORA["field"], token=TOKEN)
    assert TOKEN not in repr(found)
    assert values(found, 1, token=TOKEN) == texts(1)
    with pytest.raises(ReadError) as refused:
        values(found, 1)
    assert TOKEN not in str(refused.value)


def test_fields_are_walked_into_and_what_is_no_text_is_bad(hub: Hub) -> None:
    rows = [{"meta": {"body": "a"}, "n": 1}, {"meta": {"body": None}, "n": 2}]
    files = {"README.md": FIELD_README, "0.json": json.dumps({"rows": rows})}
    found = shards(hub, files)
    assert values(found, 0, text="meta.body") == ["a", None]
    assert all(isinstance(value, Bad) for value in values(found, 0, text="n"))
    with pytest.raises(FieldError, match="fields present: meta, n"):
        values(found, 0, text="text")


def test_damage_is_the_shards_and_names_where(hub: Hub) -> None:
    found = shards(hub, {"README.md": FIELD_README, "0.json": by_field(0)[:-40]})
    with pytest.raises(CorruptShardError, match=r"0\.json.*behind example 0"):
        values(found, 0)


def test_a_failed_request_is_a_failed_read_and_shows_no_signature(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.servers.hub import SIGNATURE, Fault

    found = shards(hub, CORPORA["field"])
    hub.faults = [Fault("large", 403, times=99)]
    with pytest.raises(ReadError) as failed:
        values(found, 0)
    assert SIGNATURE not in f"{failed.value}{failed.value.__cause__}"


def test_no_log_of_a_process_that_reads_by_datasets_alone_shows_a_signature(
    hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.servers.hub import SIGNATURE

    found = shards(hub, CORPORA["field"])
    for name in ("httpx", "httpx2"):  # as in a worker, which has listed nothing
        logging.getLogger(name).filters.clear()
    with caplog.at_level(logging.INFO):
        values(found, 0)
    assert "X-Amz-Signature=***" in caplog.text
    assert SIGNATURE not in caplog.text


@pytest.mark.parametrize(
    ("module", "settings", "kinds", "ours"),
    [
        ("parquet", {}, ["parquet"], True),
        ("parquet", {"batch_size": 10}, ["parquet"], True),
        ("parquet", {"filters": [["lang", "==", "en"]]}, ["parquet"], False),
        ("json", {}, ["jsonl", "jsonl.zst", "jsonl.gz"], True),
        ("json", {"field": "rows"}, ["jsonl"], False),
        ("json", {"encoding": "latin-1"}, ["jsonl"], False),
        ("json", {}, ["jsonl", None], False),
        ("webdataset", {}, ["tar"], True),
        ("csv", {"sep": "\t"}, ["tsv"], True),
        ("csv", {"sep": ";"}, ["csv"], False),
        ("xml", {}, [None], False),
    ],
)
def test_datasets_reads_only_what_our_readers_would_read_otherwise(
    module: str, settings: dict[str, Any], kinds: list[str | None], *, ours: bool
) -> None:
    assert our_readers(Chosen("default", "train", module, ["x"], settings), kinds) is ours
