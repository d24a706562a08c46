"""From an ``hf://datasets/`` address to the files that it means, pinned to a commit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from braceexpand import braceexpand

from streamfeed.errors import SourceError
from streamfeed.storage.hub.address import HubAddress
from streamfeed.storage.hub.archives import names_in_zip
from streamfeed.storage.hub.match import Selection, select
from streamfeed.storage.hub.rules import SETTINGS, Chosen, choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.storage.hub.client import HubClient, HubFile

__all__ = ["Attempt", "HubListing", "call_once", "resolve_hub"]

T = TypeVar("T")

Attempt = Callable[[str, Callable[[], Any]], Any]
"""``(what, request) -> answer``: makes one request, again where that helps; raises SourceError when it does not."""

_MAGIC = re.compile(r"[*?[{]")


class HubListing(NamedTuple):
    """The files that an address means, in order: their addresses are ``address.at(file.path)``.

    ``address`` is pinned to a commit. ``ignored`` counts files passed over, ``chosen`` is what the rules of
    ``datasets`` said, None where the address names files itself.
    """

    address: HubAddress
    files: Sequence[HubFile]
    ignored: int = 0
    chosen: Chosen | None = None


def resolve_hub(
    uri: str, client: HubClient, attempt: Attempt, config: str | None = None, split: str | None = None
) -> HubListing:
    """List what ``uri`` means: a whole dataset by the rules of ``datasets``, else the files below a path.

    Raises :class:`~streamfeed.errors.SourceError` where that is nothing, or where the Hub does not answer.
    """
    asked = HubAddress.parse(uri)
    address: HubAddress = attempt(uri, lambda: client.commit(asked))
    if not address.path:
        return _dataset(address, client, attempt, config, split)
    if config is not None or split is not None:
        raise SourceError(f"{uri}: config and split are of a whole dataset, not of a path in one")
    hits, ignored = _files(uri, address, client, attempt)
    if not hits:
        passed = f"; {ignored:,} hidden or marker files were passed over" if ignored else ""
        raise SourceError(f"{uri}: there is no such file in the repository at commit {address.revision}{passed}")
    return HubListing(address, hits, ignored)


def call_once(what: str, request: Callable[[], T]) -> T:
    """Make a request once; an :class:`Attempt` without patience."""
    try:
        return request()
    except (OSError, ValueError) as error:
        raise SourceError(f"{what}: {explain(error)}") from None
    except Exception as error:
        if not type(error).__module__.startswith("httpx"):
            raise
        raise SourceError(f"{what}: {explain(error)}") from None


def explain(error: BaseException) -> str:
    """Say what the Hub answered, without its URLs: those of large files are signed."""
    response = getattr(error, "response", None)
    if response is None:
        return f"the Hub cannot be reached ({type(error).__name__})"
    code, status = response.headers.get("X-Error-Code", ""), response.status_code
    return _CODES.get(code) or _STATUSES.get(status, f"the Hub answered with status {status}")


_CODES = {
    "RepoNotFound": "the Hub has no such dataset, or shows it only to some; "
    "set HF_TOKEN, or storage_options={'token': ...}, if it is private",
    "GatedRepo": "the dataset is gated; ask for access on its page, and set HF_TOKEN or storage_options={'token': ...}",
    "RevisionNotFound": "the dataset has no such revision",
    "EntryNotFound": "there is no such file or folder in the dataset",
}
_STATUSES = {401: "the Hub does not accept the token", 403: "the token may not read this dataset (status 403)"}


def _dataset(
    address: HubAddress, client: HubClient, attempt: Attempt, config: str | None, split: str | None
) -> HubListing:
    files = {file.path: file for file in _tree(address, client, attempt)}
    contents: dict[str, bytes] = {}
    for name in SETTINGS:
        if name in files:
            contents[name] = attempt(address.url, lambda name=name: client.content(address.at(name)))  # type: ignore[misc]
    contents |= _archives(address, files, client, attempt)
    chosen = choose(address.repo, files, contents, config, split)
    return HubListing(address, [files[path] for path in chosen.files], len(files) - len(chosen.files), chosen)


def _archives(address: HubAddress, files: dict[str, HubFile], client: HubClient, attempt: Attempt) -> dict[str, bytes]:
    """Return zip files in the place of the repository's: the rules look at the names in them.

    Files that are named alike but for numbers hold the same kind of thing, so one of them is looked into.
    """
    alike: dict[str, bytes] = {}
    found: dict[str, bytes] = {}
    for path in sorted(path for path in files if path.endswith(".zip")):
        stem = re.sub(r"\d+", "0", path)
        if stem not in alike:
            alike[stem] = names_in_zip(address, files[path], client, attempt)
        found[path] = alike[stem]
    return found


def _files(uri: str, address: HubAddress, client: HubClient, attempt: Attempt) -> tuple[list[HubFile], int]:
    found = attempt(uri, lambda: client.look(address))
    if not isinstance(found, bool):
        return [found], 0
    if found:
        return _selected(address, "**", client, attempt)
    if not _MAGIC.search(address.path):
        return [], 0
    folder = address.path[: address.path.rfind("/", 0, _MAGIC.search(address.path).start()) + 1].rstrip("/")  # type: ignore[union-attr]
    return _selected(address.at(folder), address.path[len(folder) :].strip("/"), client, attempt)


def _selected(folder: HubAddress, pattern: str, client: HubClient, attempt: Attempt) -> tuple[list[HubFile], int]:
    prefix = folder.path + "/" if folder.path else ""
    files = {file.path[len(prefix) :]: file for file in _tree(folder, client, attempt)}
    try:
        patterns = list(braceexpand(pattern)) if "{" in pattern else [pattern]
    except ValueError as error:
        raise SourceError(f"{folder.url}/{pattern}: the braces are unbalanced") from error
    picked = [select(files, part) for part in patterns]
    for part, selection in zip(patterns, picked, strict=True):
        if not selection.hits and not _MAGIC.search(part):
            raise SourceError(f"{folder.url}/{pattern}: it names {part}, and there is no such file")
    return [files[name] for name in _once(folder, picked)], len(set().union(*(one.ignored for one in picked)))


def _once(folder: HubAddress, picked: Sequence[Selection]) -> list[str]:
    names = list(itertools.chain.from_iterable(selection.hits for selection in picked))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{folder.url}/{twice} is meant twice; a file can be in a source once")
    return names


def _tree(address: HubAddress, client: HubClient, attempt: Attempt) -> list[HubFile]:
    files: list[HubFile] = []
    url: str | None = client.tree_url(address)
    while url is not None:
        page, url = attempt(address.url, lambda url=url: client.page(url))  # type: ignore[misc]
        files += page
    return files
