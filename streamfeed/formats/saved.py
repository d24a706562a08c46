"""Folders that ``datasets`` saved: Arrow streams, and JSON files about them that are no shards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from streamfeed.errors import SourceError
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfeed.storage.listing import Listing
    from streamfeed.storage.store import Store

__all__ = ["without_saved_files"]

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_ABOUT = (_STATE, _INFO, _SPLITS)


def without_saved_files(listing: Listing, store: Store) -> Listing:
    """Pass over what is no data in folders of ``save_to_disk``, and put their data files in their own order.

    Beside Arrow files, ``state.json`` and ``dataset_info.json`` are about them; where there is a ``state.json``, only
    the Arrow files that it names are data (others are what ``map`` left in its cache). Raises :class:`SourceError`
    where a named one is missing, for a folder of several splits, and where rows are chosen by a file of indices.
    """
    if not any(url.endswith(_ABOUT) for url in listing.urls):
        return listing
    folders: dict[str, dict[str, int]] = {}
    for number, url in enumerate(listing.urls):
        folder, _, name = url.rpartition("/")
        folders.setdefault(folder, {})[name] = number
    kept: list[int] = []
    for folder, files in folders.items():
        kept += _data(folder, files, folders, listing, store)
    if len(kept) == len(listing.urls) and kept == sorted(kept):
        return listing
    return replace(listing.part(kept), ignored=listing.ignored + len(listing.urls) - len(kept))


def _data(
    folder: str, files: Mapping[str, int], folders: Mapping[str, Mapping[str, int]], listing: Listing, store: Store
) -> list[int]:
    """Return the files of one folder that are shards."""
    arrow = [name for name in files if name.endswith(".arrow")]
    if _SPLITS in files and not arrow:
        splits = [other for other in folders if other.rpartition("/")[0] == folder and _STATE in folders[other]]
        if len(splits) > 1:
            names = ", ".join(split.rpartition("/")[2] for split in splits)
            raise SourceError(f"{redact(folder)}: holds the splits {names} of a saved dataset; name the folder of one")
        return [number for name, number in files.items() if not (splits and name == _SPLITS)]
    if not arrow:
        return list(files.values())
    if _STATE not in files:
        return [number for name, number in files.items() if name != _INFO]
    number = files[_STATE]
    file = store.file(listing.urls[number], listing.sizes[number], listing.versions[number])
    with closing(file.open()) as raw:
        named = _named(raw.read_at(0, file.size), folder)
    missing = [name for name in named if name not in files]
    if missing:
        raise SourceError(f"{redact(folder)}: {_STATE} names {missing[0]}, which is not there; save the dataset again")
    others = [number for name, number in files.items() if name not in {*arrow, _STATE, _INFO}]
    return [files[name] for name in named] + others


def _named(data: bytes, folder: str) -> list[str]:
    """Return the data files that the state names, in order."""
    try:
        state: dict[str, Any] = orjson.loads(data)
        if state.get("_indices_files") or state.get("_indices_data_files"):
            raise SourceError(
                f"{redact(folder)}: its rows are chosen by a file of indices; save it again after flatten_indices()"
            )
        return [str(entry["filename"]) for entry in state["_data_files"]]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        cause = f"{_STATE} beside Arrow files is not that of a saved dataset ({type(error).__name__}: {error})"
        raise SourceError(f"{redact(folder)}: {cause}; name the files by a pattern, as in *.arrow") from error
