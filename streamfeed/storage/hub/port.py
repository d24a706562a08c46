"""The Hub as a port of the storage edge: one request a call, and no listing to open a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfeed.storage.client import Entry, Limits, Progress
from streamfeed.storage.hub.address import HubAddress
from streamfeed.storage.hub.client import HubClient, HubFile, hide_signatures

if TYPE_CHECKING:
    from streamfeed.storage.client import Port

__all__ = ["HubPort"]

_DATASETS = "datasets/"


class HubPort:
    """Reads files of dataset repositories; ``other`` is asked for what else ``hf://`` means (models, buckets).

    Versions are the ETags that the Hub gives a file of a commit, and every read is checked against them.
    """

    conditional = True

    def __init__(self, fs: Any, other: Port) -> None:  # noqa: ANN401
        self._options = {"token": fs.token, "endpoint": fs.endpoint}
        self._other = other
        hide_signatures()

    def read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:
        """Read a range of a file of the version known."""
        if not path.startswith(_DATASETS):
            self._other.read(path, start, stop, known, into, limits)
            return
        address, client = self._at(path, limits)
        client.read(address, (start, stop), HubFile(address.path, known.size, known.version), into.add)

    def info(self, path: str, limits: Limits) -> Entry:
        """Return what is at ``path``."""
        if not path.startswith(_DATASETS):
            return self._other.info(path, limits)
        address, client = self._at(path, limits)
        found = True if not address.path else client.look(address)
        if found is False:
            raise FileNotFoundError(path)
        return Entry(path, 0, "", folder=True) if found is True else Entry(path, found.size, found.version)

    def tree(self, path: str, stem: str, token: str, limits: Limits) -> tuple[list[Entry], str] | None:
        """Return a page of the files below ``path``; the token is the URL of the next."""
        if not path.startswith(_DATASETS):
            return self._other.tree(path, stem, token, limits)
        address, client = self._at(path, limits)
        root = address.at("").url.removeprefix("hf://")
        files, following = client.page(token or client.tree_url(address))
        return [Entry(f"{root}/{file.path}", file.size, file.version) for file in files], following or ""

    def folder(self, path: str, limits: Limits) -> list[Entry]:
        """Return the files and folders right below ``path``; asked where there is no tree alone."""
        return self._other.folder(path, limits)

    def _at(self, path: str, limits: Limits) -> tuple[HubAddress, HubClient]:
        return HubAddress.parse("hf://" + path), HubClient(self._options, limits.stall_s)
