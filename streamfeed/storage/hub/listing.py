"""The files of a whole dataset on the Hub, at one commit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfeed.storage.hub.archives import names_in_zip
from streamfeed.storage.hub.rules import SETTINGS, Chosen, choose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.storage.hub.address import HubAddress
    from streamfeed.storage.hub.client import HubClient, HubFile

__all__ = ["Attempt", "HubListing", "explain", "list_dataset"]

Attempt = Callable[[str, Callable[[], Any]], Any]
"""``(what, request) -> answer``: makes one request, again where that helps; raises SourceError when it does not."""


class HubListing(NamedTuple):
    """A dataset: its files in order, at ``address.at(file.path)``, and what the rules of ``datasets`` said.

    ``address`` is pinned to a commit. ``ignored`` counts the repository's other files.
    """

    address: HubAddress
    files: Sequence[HubFile]
    ignored: int
    chosen: Chosen


def list_dataset(
    address: HubAddress, client: HubClient, attempt: Attempt, config: str | None = None, split: str | None = None
) -> HubListing:
    """List what a dataset, one of its configs and one of its splits mean at the commit of ``address``.

    Raises :class:`~streamfeed.errors.SourceError` where that is nothing, or where the Hub does not answer.
    """
    files = {file.path: file for file in _tree(address, client, attempt)}
    contents: dict[str, bytes] = {}
    for name in SETTINGS:
        if name in files:
            contents[name] = attempt(address.url, lambda name=name: client.content(address.at(name)))  # type: ignore[misc]
    contents |= _archives(address, files, client, attempt)
    chosen = choose(address.repo, files, contents, config, split)
    return HubListing(address, [files[path] for path in chosen.files], len(files) - len(chosen.files), chosen)


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


def _tree(address: HubAddress, client: HubClient, attempt: Attempt) -> list[HubFile]:
    files: list[HubFile] = []
    url: str | None = client.tree_url(address)
    while url is not None:
        page, url = attempt(address.url, lambda url=url: client.page(url))  # type: ignore[misc]
        files += page
    return files
