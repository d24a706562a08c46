"""Whether our readers read what ``datasets`` chose; if not, the shards that it reads itself."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfeed.errors import SourceError
from streamfeed.formats.hub import open_dataset
from streamfeed.formats.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.hub.listing import HubListing
    from streamfeed.storage.hub.rules import Chosen

__all__ = ["HubShardList", "is_array", "our_readers", "shards_by_datasets"]

_KINDS = {
    "arrow": ("arrow",),
    "csv": ("csv", "tsv"),
    "json": ("jsonl",),
    "parquet": ("parquet",),
    "text": ("lines",),
    "webdataset": ("tar",),
}
"""By module of ``datasets``: the kinds of shards, without compression, that we read as it does."""

_INDIFFERENT = {"batch_size", "block_size", "chunksize", "columns", "features", "parse_agent_traces", "use_threads"}
"""Settings that change how a file is read, or what of it, but not the text of a record."""

_SEPARATORS = {"csv": ",", "tsv": "\t"}
_FOLDERS = ("audiofolder", "imagefolder", "meshfolder", "niftifolder", "pdffolder", "videofolder", "mmcif", "pdb")


class HubShardList(NamedTuple):
    """Shards that ``datasets`` reads: parallel lists as in a listing, and their kind."""

    urls: list[str]
    names: list[str]
    sizes: list[int]
    versions: list[str]
    kind: str


def our_readers(chosen: Chosen, kinds: Sequence[str | None]) -> bool:
    """Return whether files of these ``kinds`` (None: unknown) hold for us the records that ``chosen`` says."""
    plain = {None if kind is None else kind.partition(".")[0] for kind in kinds}
    settings = {name: value for name, value in chosen.settings.items() if name not in _INDIFFERENT}
    if settings.keys() == {"sep"} and plain <= {kind for kind, sep in _SEPARATORS.items() if sep == settings["sep"]}:
        settings = {}
    return not settings and plain <= set(_KINDS.get(chosen.module, ()))


def is_array(file: ShardFile) -> bool:
    """Return whether a ``.json`` file is one array of records, which ``datasets`` reads and JSON Lines are not."""
    with closing(file.open()) as raw:
        raw.expect(0, min(file.size, 64))
        head = raw.read(64) or b""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def shards_by_datasets(listing: HubListing, options: Mapping[str, Any]) -> HubShardList:
    """Return the shards of a dataset as ``datasets`` cuts it: ``num_shards`` of them.

    Raises :class:`~streamfeed.errors.SourceError` where it cannot open the dataset.
    """
    chosen, address, files = listing.chosen, listing.address.at(""), listing.files
    assert chosen is not None
    recipe = Recipe(chosen.module, chosen.config, chosen.split, chosen.settings)
    paths = [file.path for file in files]
    count = _count(recipe, listing, paths, options)
    if count == len(files) and chosen.module not in _FOLDERS:
        urls = [address.at(path).url for path in paths]
        return HubShardList(urls, paths, [f.size for f in files], [f.version for f in files], recipe.kind)
    recipe = Recipe(chosen.module, chosen.config, chosen.split, chosen.settings, paths)
    names = recipe.names(count)
    share = max(1, sum(file.size for file in files) // max(1, count))
    return HubShardList([address.at(name).url for name in names], names, [share] * count, [""] * count, recipe.kind)


def _count(recipe: Recipe, listing: HubListing, paths: Sequence[str], options: Mapping[str, Any]) -> int:
    try:
        return int(open_dataset(recipe, listing.address.at(""), paths, options).num_shards)
    except Exception as error:  # noqa: BLE001 - of any library that a builder uses; its text may hold signed URLs
        url = listing.address.at("").url
        raise SourceError(
            f"{url}: only `datasets` can read it ({recipe.module}), and it fails to: {type(error).__name__}"
        ) from None
