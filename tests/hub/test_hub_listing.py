"""Which files an address on the Hub means: datasets by the rules of `datasets`, paths by ours, one commit for all."""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.errors import SourceError
from streamfeed.stats import ReadStats
from streamfeed.storage.retry import Retrier, RetryPolicy
from streamfeed.storage.store import Store
from tests.servers.hub import SIGNATURE, TOKEN, Fault, Hub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfeed.storage.hub.rules import Chosen
    from streamfeed.storage.listing import Listing

LINE = '{"text": "a"}\n'
README = """---
configs:
- config_name: english
  default: true
  data_files:
  - split: train
    path: en/train-*.jsonl
  - split: heldout
    path: en/test.jsonl
- config_name: german
  data_files: de/*.jsonl
---
# A dataset
"""
BOOKS = {
    "README.md": README,
    "en/train-1.jsonl": LINE,
    "en/train-2.jsonl": LINE * 100,
    "en/test.jsonl": LINE,
    "de/a.jsonl": LINE,
}
SHARDED = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]


class Asked:
    """A listing of one or more addresses, and how it came."""

    def __init__(
        self, *uris: str, config: str | None = None, split: str | None = None, attempts: int = 1, **options: Any
    ) -> None:
        self.stats = ReadStats()
        self.waits: list[float] = []
        policy = RetryPolicy(attempts=attempts)
        retrier = Retrier(policy, self.stats, clock=lambda: 0.0, sleep=self.waits.append, draw=lambda: 0.5)
        self.store = Store(options, self.stats, retrier=retrier)
        self.listing = self.store.list(uris, config, split)

    def bytes_of(self, index: int) -> bytes:
        """All bytes of one shard, read through the store."""
        listing = self.listing
        file = self.store.file(listing.urls[index], listing.sizes[index], listing.versions[index])
        with file.open() as raw:
            return raw.read_at(0, file.size)


def resolve(uri: str, config: str | None = None, split: str | None = None, **options: Any) -> Listing:
    return Asked(uri, config=config, split=split, **options).listing


def paths(listing: Listing) -> list[str]:
    return listing.names


def chosen(listing: Listing) -> Chosen:
    (dataset,) = listing.datasets
    return dataset.chosen


@pytest.mark.parametrize(
    ("config", "split", "files"),
    [
        (None, None, ["en/train-1.jsonl", "en/train-2.jsonl"]),
        ("english", "train", ["en/train-1.jsonl", "en/train-2.jsonl"]),
        (None, "heldout", ["en/test.jsonl"]),
        ("german", None, ["de/a.jsonl"]),
    ],
)
def test_the_configs_of_a_readme_choose_the_files(hub: Hub, config: str, split: str, files: list[str]) -> None:
    hub.repo("org/books", BOOKS)
    assert paths(resolve("hf://datasets/org/books", config, split)) == files


def test_what_there_is_is_named_where_a_config_or_split_is_not(hub: Hub) -> None:
    hub.repo("org/books", {**BOOKS, "README.md": README.replace("  default: true\n", "")})
    with pytest.raises(SourceError, match=r"'english', 'german'.*Source\(config=\.\.\.\)"):
        resolve("hf://datasets/org/books")
    with pytest.raises(SourceError, match="'english', 'german'"):
        resolve("hf://datasets/org/books", "french")
    with pytest.raises(SourceError, match=r"no split 'dev'.*train, heldout"):
        resolve("hf://datasets/org/books", "english", "dev")


@pytest.mark.parametrize(
    ("files", "module", "found"),
    [
        ([*SHARDED, "data/test-00000-of-00001.parquet"], "parquet", SHARDED),
        (["b/2.jsonl.zst", "a/1.jsonl.zst", ".hidden.jsonl", "notes.bin"], "json", ["a/1.jsonl.zst", "b/2.jsonl.zst"]),
        (["x-000.tar", "x-001.tar"], "webdataset", ["x-000.tar", "x-001.tar"]),
        (["train/a.txt", "validation/b.txt"], "text", ["train/a.txt"]),
        (["only-test.csv"], "csv", ["only-test.csv"]),
    ],
)
def test_without_a_readme_names_choose_splits_and_module(
    hub: Hub, files: list[str], module: str, found: list[str]
) -> None:
    hub.repo("org/plain", dict.fromkeys(files, "x"))
    listing = resolve("hf://datasets/org/plain")
    assert (chosen(listing).module, paths(listing)) == (module, found)


def test_the_rules_are_those_of_datasets_itself(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    hub.repo("org/books", BOOKS)
    theirs = datasets.load_dataset_builder("org/books", "german").config.data_files["train"]
    listing = resolve("hf://datasets/org/books", "german")
    assert listing.urls == list(theirs)


def test_what_the_readme_sets_of_the_reader_is_kept(hub: Hub) -> None:
    readme = "---\nconfigs:\n- config_name: default\n  data_files: '*.json'\n  field: rows\n---\n"
    hub.repo("org/field", {"README.md": readme, "a.json": "{}"})
    listing = resolve("hf://datasets/org/field")
    assert chosen(listing).settings == {"field": "rows"}


def test_sizes_and_versions_are_those_that_the_hub_sends(hub: Hub) -> None:
    repo = hub.repo("org/books", BOOKS)
    asked = Asked("hf://datasets/org/books")
    blobs = [repo.blob("main", path) for path in asked.listing.names]
    assert [blob.large for blob in blobs] == [False, True]
    assert asked.listing.sizes == [len(blob.data) for blob in blobs]
    assert asked.listing.versions == [blob.etag for blob in blobs]
    assert [asked.bytes_of(index) for index in range(2)] == [blob.data for blob in blobs]


def test_no_log_shows_the_signature_of_a_large_file_or_a_token(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.repo("org/books", BOOKS, private=True)
    with caplog.at_level(logging.INFO):
        asked = Asked("hf://datasets/org/books", token=TOKEN)
        asked.bytes_of(1)
    assert hub.count("large") == 1
    assert SIGNATURE not in caplog.text
    assert TOKEN not in caplog.text


def test_every_file_is_pinned_to_the_commit_that_the_revision_meant(hub: Hub) -> None:
    repo = hub.repo("org/books")
    first = repo.commit({"a.jsonl": LINE}, tag="v1")
    second = repo.commit({"a.jsonl": LINE * 2, "b.jsonl": LINE})
    for uri, sha, count in [
        ("hf://datasets/org/books", second, 2),
        ("hf://datasets/org/books@main", second, 2),
        ("hf://datasets/org/books@v1", first, 1),
        (f"hf://datasets/org/books@{first}", first, 1),
        ("hf://datasets/org/books@v1/*.jsonl", first, 1),
    ]:
        listing = resolve(uri)
        assert listing.urls == [
            f"hf://datasets/org/books@{sha}/{name}" for name in "ab"[:count] for name in [f"{name}.jsonl"]
        ]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("en", ["en/test.jsonl", "en/train-1.jsonl", "en/train-2.jsonl"]),
        ("en/train-1.jsonl", ["en/train-1.jsonl"]),
        ("README.md", ["README.md"]),
        ("en/train-*.jsonl", ["en/train-1.jsonl", "en/train-2.jsonl"]),
        ("*/t*-[13].jsonl", ["en/train-1.jsonl"]),
        ("{en,de}/*", ["en/test.jsonl", "en/train-1.jsonl", "en/train-2.jsonl", "de/a.jsonl"]),
        ("**/*.jsonl", ["de/a.jsonl", "en/test.jsonl", "en/train-1.jsonl", "en/train-2.jsonl"]),
        ("**", ["de/a.jsonl", "en/test.jsonl", "en/train-1.jsonl", "en/train-2.jsonl"]),
        ("en/train-{1..2}.jsonl", ["en/train-1.jsonl", "en/train-2.jsonl"]),
    ],
)
def test_a_path_means_files_as_it_does_on_a_disk(hub: Hub, pattern: str, found: list[str]) -> None:
    hub.repo("org/books", {**BOOKS, "en/.hidden.jsonl": LINE, "_tmp/x.jsonl": LINE})
    assert paths(resolve(f"hf://datasets/org/books/{pattern}")) == found


@pytest.mark.parametrize("pattern", ["nix.jsonl", "nix/*.jsonl", "*.nix", "_tmp/nix", "en/train-{1..3}.jsonl"])
def test_a_path_that_means_nothing_is_an_error(hub: Hub, pattern: str) -> None:
    hub.repo("org/books", BOOKS)
    with pytest.raises(SourceError, match=r"no such file|matches no file"):
        resolve(f"hf://datasets/org/books/{pattern}")


def test_config_and_split_are_of_whole_datasets(hub: Hub) -> None:
    hub.repo("org/books", BOOKS)
    with pytest.raises(SourceError, match="whole dataset"):
        resolve("hf://datasets/org/books/en", split="train")


@pytest.mark.parametrize(
    "name", ["a b.jsonl", "100%.jsonl", "%41.jsonl", "c#.jsonl", "d?.jsonl", "e+f=g.jsonl", "ü漢.jsonl"]
)
def test_names_of_any_characters_are_read(hub: Hub, name: str) -> None:
    hub.repo("org/odd", {f"x/{name}": LINE})
    for uri in ("hf://datasets/org/odd", f"hf://datasets/org/odd/x/{name}"):
        asked = Asked(uri)
        assert asked.listing.names == [f"x/{name}"]
        assert asked.bytes_of(0).decode() == LINE


def test_a_listing_of_many_pages_is_whole_and_costs_a_request_a_page(hub: Hub) -> None:
    hub.page = 10
    hub.repo("org/many", {f"{index:03}.jsonl": LINE for index in range(95)})
    assert len(resolve("hf://datasets/org/many").urls) == 95
    assert (hub.count("info"), hub.count("tree"), len(hub.log)) == (1, 10, 11)


def test_a_private_dataset_needs_the_token_and_shows_it_to_nobody(hub: Hub) -> None:
    hub.repo("org/secret", BOOKS, private=True)
    with pytest.raises(SourceError, match="HF_TOKEN"):
        resolve("hf://datasets/org/secret")
    with pytest.raises(SourceError, match="does not accept the token") as refused:
        resolve("hf://datasets/org/secret", token="hf_wrongSecret")
    assert "wrongSecret" not in "".join(map(str, [refused.value, refused.value.__cause__]))
    asked = Asked("hf://datasets/org/secret", token=TOKEN)
    assert asked.bytes_of(0).decode() == LINE
    assert TOKEN not in repr(asked.listing)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("info", ""),
        ("tree", ""),
        ("resolve", ""),
        ("paths-info", "/en"),
        ("tree", "/en"),
        ("tree", "/**"),
        ("info", "/en"),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_throttled_request_is_an_error_and_never_fewer_files(hub: Hub, kind: str, path: str, status: int) -> None:
    hub.repo("org/books", BOOKS)
    hub.faults = [Fault(kind, status, times=9)]
    with pytest.raises(SourceError, match=f"{status}.*3 attempts|3 attempts.*{status}"):
        resolve("hf://datasets/org/books" + path, attempts=3)
    assert hub.faults[0].times == 9 - 3


@pytest.mark.parametrize("path", ["", "/**"])
def test_a_page_that_failed_is_asked_for_again_after_the_time_that_the_hub_says(hub: Hub, path: str) -> None:
    hub.page = 2
    hub.repo("org/books", BOOKS)
    hub.faults = [Fault("tree", 429, after=1, times=2, headers={"Retry-After": "7"})]
    asked = Asked(f"hf://datasets/org/books{path}", attempts=3)
    assert len(asked.listing.urls) == (4 if path else 2)
    assert hub.count("tree") == 4 + 2
    assert asked.waits == [7.0, 7.0]
    assert asked.stats.retries == 2


def test_all_addresses_of_a_source_are_of_one_commit(hub: Hub) -> None:
    repo = hub.repo("org/books", BOOKS)
    sha = repo.sha("main")
    listing = Asked("hf://datasets/org/books", "hf://datasets/org/books/de/*", config="english").listing
    assert {url.partition("@")[2].partition("/")[0] for url in listing.urls} == {sha}
    assert hub.count("info") == 1
    with pytest.raises(SourceError, match="meant twice"):
        Asked("hf://datasets/org/books", "hf://datasets/org/books@main/en/*", config="english")


def test_scripts_of_a_repository_are_never_run(hub: Hub) -> None:
    hub.repo("org/books", {**BOOKS, "books.py": "raise SystemExit"})
    with pytest.raises(SourceError, match="scripts are no longer supported"):
        resolve("hf://datasets/org/books")


@pytest.mark.parametrize(
    "pattern",
    ["https://elsewhere.example/x.csv", "/etc/*.conf", "../../*.jsonl", "zip://*::https://elsewhere.example/a.zip"],
)
def test_a_readme_that_points_out_of_the_repository_is_refused(hub: Hub, pattern: str) -> None:
    readme = f"---\nconfigs:\n- config_name: default\n  data_files: {json.dumps(pattern)}\n---\n"
    hub.repo("org/books", {"README.md": readme, "a.jsonl": LINE})
    with pytest.raises(SourceError, match="outside of the repository"):
        resolve("hf://datasets/org/books")


def test_an_archive_is_what_the_names_in_it_are(hub: Hub) -> None:
    hub.repo("org/zipped", {f"part-{index}.zip": zipped({"a.jsonl": LINE * 5000}) for index in range(3)})
    listing = resolve("hf://datasets/org/zipped")
    assert (chosen(listing).module, len(listing.urls)) == ("json", 3)
    asked = {re.sub(".*/", "", one.path) for one in hub.log if one.kind == "large"}
    assert asked == {"part-0.zip"}


def test_what_datasets_cannot_find_data_in_is_an_error_with_advice(hub: Hub) -> None:
    hub.repo("org/nothing", {"README.md": "# nothing", "x.bin": "x"})
    with pytest.raises(SourceError, match=r"hf://datasets/org/nothing.*\*\.parquet"):
        resolve("hf://datasets/org/nothing")
    with pytest.raises(SourceError, match="no such dataset"):
        resolve("hf://datasets/org/nix")
    with pytest.raises(SourceError, match="no such revision"):
        resolve("hf://datasets/org/nothing@v9")


def zipped(members: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()
