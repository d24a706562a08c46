"""Whether our readers read what ``datasets`` chose; if not, the shards that it reads itself."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamfeed.errors import SourceError
from streamfeed.formats.detect import kind_of
from streamfeed.formats.hub import open_dataset
from streamfeed.formats.recipe import Recipe
from streamfeed.storage.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.hub.address import HubAddress
    from streamfeed.storage.hub.listing import HubListing
    from streamfeed.storage.hub.rules import Chosen
    from streamfeed.storage.store import Store

__all__ = ["fitted", "our_readers", "shards_by_datasets"]

_KINDS = {
    "arrow": ("arrow",),
    "csv": ("csv", "tsv"),
    "json": ("jsonl",),
    "parquet": ("parquet",),
    "text": ("text", "lines"),
    "webdataset": ("tar",),
}
"""By module of ``datasets``: the kinds of shards, without compression, that we read as it does."""

_INDIFFERENT = {"batch_size", "block_size", "chunksize", "columns", "features", "parse_agent_traces", "use_threads"}
"""Settings that change how a file is read, or what of it, but not the text of a record."""

_SEPARATORS = {"csv": ",", "tsv": "\t"}
_FOLDERS = ("audiofolder", "imagefolder", "meshfolder", "niftifolder", "pdffolder", "videofolder", "mmcif", "pdb")


def fitted(listing: Listing, store: Store, forced: str | None) -> tuple[Listing, list[str | None]]:
    """Return the listing as it is read, and the kind of each shard, None where its first bytes are to say it.

    Datasets on the Hub that our readers do not read as ``datasets`` does become its own shards; ``forced``, a source's
    format, says that ours are to read them. Raises :class:`~streamfeed.errors.SourceError` where such a dataset shares
    its source, or ``datasets`` cannot open it.
    """
    lines = {} if forced is not None else _lines(listing)
    foreign = [one for one in listing.datasets if forced is None and not _is_ours(one, store)]
    if not foreign:
        return listing, [kind_of(url, lines.get(url, forced)) for url in listing.urls]
    if len(listing.urls) != len(foreign[0].files):
        raise SourceError(
            f"{foreign[0].address.url}: only `datasets` can read it ({foreign[0].chosen.module}); give it a source of "
            "its own, or say by the source's format how to read its files"
        )
    shards, kind = shards_by_datasets(foreign[0], store.options)
    return shards, [kind] * len(shards.urls)


def _lines(listing: Listing) -> dict[str, str]:
    """Return the URLs of text files of which ``datasets`` makes a record a line: by themselves they are one each."""
    return {
        one.address.at(file.path).url: "lines"
        for one in listing.datasets
        if one.chosen.module == "text" and one.chosen.settings.get("sample_by", "line") == "line"
        for file in one.files
    }


def _is_ours(listing: HubListing, store: Store) -> bool:
    if not our_readers(listing.chosen, [_kind_of(file.path) for file in listing.files]):
        return False
    first = next((file for file in listing.files if file.path.endswith(".json")), None)
    if first is None or listing.chosen.module != "json":
        return True
    return not _is_array(store.file(listing.address.at(first.path).url, first.size, first.version))


def _kind_of(path: str) -> str | None:
    try:
        return kind_of(path, None)
    except SourceError:  # a suffix that we know of and do not read
        return None


def our_readers(chosen: Chosen, kinds: Sequence[str | None]) -> bool:
    """Return whether files of these ``kinds`` (None: unknown) hold for us the records that ``chosen`` says."""
    plain = {None if kind is None else kind.partition(".")[0] for kind in kinds}
    settings = {name: value for name, value in chosen.settings.items() if name not in _INDIFFERENT}
    if chosen.module == "text" and settings.get("sample_by") in {"line", "document"}:
        del settings["sample_by"]
    if settings.keys() == {"sep"} and plain <= {kind for kind, sep in _SEPARATORS.items() if sep == settings["sep"]}:
        settings = {}
    return not settings and plain <= set(_KINDS.get(chosen.module, ()))


def _is_array(file: ShardFile) -> bool:
    """Return whether a ``.json`` file is one array of records, which ``datasets`` reads and JSON Lines are not."""
    with closing(file.open()) as raw:
        raw.expect(0, min(file.size, 64))
        head = raw.read(64) or b""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def shards_by_datasets(listing: HubListing, options: Mapping[str, Any]) -> tuple[Listing, str]:
    """Return the shards of a dataset as ``datasets`` cuts it, ``num_shards`` of them, and their kind.

    Raises :class:`~streamfeed.errors.SourceError` where it cannot open the dataset.
    """
    chosen, address, files = listing.chosen, listing.address.at(""), listing.files
    paths = [file.path for file in files]
    recipe = Recipe(chosen.module, chosen.config, chosen.split, chosen.settings)
    count = _count(recipe, address, paths, options)
    if count == len(files) and chosen.module not in _FOLDERS:
        names, sizes, versions = paths, [file.size for file in files], [file.version for file in files]
    else:
        recipe = replace(recipe, files=paths)
        share = max(1, sum(file.size for file in files) // max(1, count))
        names, sizes, versions = recipe.names(count), [share] * count, [address.revision or ""] * count
    urls = [address.at(name).url for name in names]
    return Listing(urls, names, sizes, listing.ignored, versions), recipe.kind


def _count(recipe: Recipe, address: HubAddress, paths: Sequence[str], options: Mapping[str, Any]) -> int:
    try:
        return int(open_dataset(recipe, address, paths, options).num_shards)
    except Exception as error:  # noqa: BLE001 - of any library that a builder uses; its text may hold signed URLs
        raise SourceError(
            f"{address.url}: only `datasets` can read it ({recipe.module}), and it fails to: {type(error).__name__}"
        ) from None
