"""Folders of ``save_to_disk``, as ``datasets`` itself writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import datasets
import pytest

from streamfeed.errors import SourceError
from streamfeed.formats.arrow_ipc import ArrowIpc
from streamfeed.formats.protocol import WHOLE, Cursor, Value
from streamfeed.formats.saved import without_saved_files
from streamfeed.storage.store import Store
from tests.reading import values_in

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.storage.listing import Listing

TEXTS = [f"text {i}" if i % 7 else None for i in range(50)]


@pytest.fixture(autouse=True)
def _no_bars() -> None:
    datasets.disable_progress_bars()


def dataset(texts: list[str | None] | None = None) -> Any:
    return datasets.Dataset.from_dict({"id": list(range(50)), "text": texts or TEXTS})


def listed(*uris: object) -> Listing:
    store = Store()
    return without_saved_files(store.list([str(uri) for uri in uris]), store)


def values_of(listing: Listing) -> list[Value]:
    return [
        value
        for url, size, version in zip(listing.urls, listing.sizes, listing.versions, strict=True)
        for value in values_in(ArrowIpc("text").read(Store().file(url, size, version), WHOLE, Cursor()))
    ]


def test_a_saved_dataset_is_its_data_files_and_the_rest_is_counted(tmp_path: Path) -> None:
    dataset().save_to_disk(tmp_path, num_shards=3)
    found = listed(tmp_path)
    assert found.names == [f"data-{i:05}-of-00003.arrow" for i in range(3)]
    assert found.ignored == 2
    assert values_of(found) == TEXTS


def test_the_order_is_that_of_the_state(tmp_path: Path) -> None:
    dataset().save_to_disk(tmp_path, num_shards=3)
    state = json.loads((tmp_path / "state.json").read_text())
    state["_data_files"].reverse()
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert listed(tmp_path).names == [f"data-{i:05}-of-00003.arrow" for i in (2, 1, 0)]


def test_what_map_cached_beside_the_data_is_no_data(tmp_path: Path) -> None:
    dataset().save_to_disk(tmp_path)
    datasets.load_from_disk(tmp_path).map(lambda row: {"text": row["text"] and row["text"].upper()})
    assert list(tmp_path.glob("cache-*.arrow"))
    found = listed(tmp_path)
    assert values_of(found) == TEXTS
    assert found.ignored == 3


def test_of_several_splits_one_must_be_named(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": dataset(), "test": dataset()}).save_to_disk(tmp_path)
    with pytest.raises(SourceError, match="holds the splits test, train of a saved dataset; name the folder of one"):
        listed(tmp_path)
    assert values_of(listed(tmp_path / "train")) == TEXTS
    assert values_of(listed(tmp_path / "train", tmp_path / "test")) == TEXTS * 2
    datasets.DatasetDict({"train": dataset()}).save_to_disk(tmp_path / "one")
    assert values_of(listed(tmp_path / "one")) == TEXTS


def test_a_data_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    dataset().save_to_disk(tmp_path, num_shards=3)
    (tmp_path / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(SourceError, match=r"state\.json names data-00001-of-00003\.arrow, which is not there"):
        listed(tmp_path)


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("{", "is not that of a saved dataset"),
        ("[]", "is not that of a saved dataset"),
        ('{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}', "chosen by a file of indices"),
    ],
)
def test_a_state_of_another_kind_is_an_error(tmp_path: Path, state: str, cause: str) -> None:
    dataset().save_to_disk(tmp_path)
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(SourceError, match=cause):
        listed(tmp_path)


def test_the_same_names_elsewhere_are_shards(tmp_path: Path) -> None:
    for name in ("state.json", "dataset_info.json", "x.jsonl"):
        (tmp_path / name).write_text('{"text": "a"}\n')
    assert listed(tmp_path).names == ["dataset_info.json", "state.json", "x.jsonl"]
