"""Lists ``hf://datasets/`` addresses: whole datasets by the rules of ``datasets``, paths in one by ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfeed.errors import SourceError
from streamfeed.storage.hub.address import PREFIX, HubAddress
from streamfeed.storage.hub.client import HubClient
from streamfeed.storage.hub.listing import HubListing, explain, list_dataset
from streamfeed.storage.retry import GaveUpError
from streamfeed.storage.urls import redact
from streamfeed.storage.walk import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfeed.storage.client import Limits, Port
    from streamfeed.storage.edge import RemoteEdge
    from streamfeed.storage.listing import Lister

__all__ = ["HubTree"]


class HubTree:
    """Lists the addresses of one source; ``other`` lists what is pinned to a commit, and all other stores.

    A revision of a repository is looked up once, so that all URIs of a source are of one commit. ``datasets`` are the
    whole datasets that were listed, in order.
    """

    def __init__(self, edge: RemoteEdge, other: Lister, config: str | None, split: str | None) -> None:
        self._edge = edge
        self._other = other
        self._config = config
        self._split = split
        self._client = HubClient(edge.options)
        self._pinned: dict[tuple[str, str | None], HubAddress] = {}
        self.datasets: list[HubListing] = []

    def prepare(self, uris: Sequence[str]) -> None:
        """Pin the Hub's addresses, and let ``other`` prepare for those that are paths."""
        pinned = [self._pin(uri) if uri.startswith(PREFIX) else None for uri in uris]
        self._other.prepare(
            [
                uri if address is None else address.url
                for uri, address in zip(uris, pinned, strict=True)
                if address is None or address.path
            ]
        )

    def one(self, uri: str) -> tuple[list[Found], int]:
        """Return the files that ``uri`` means, named by their paths in the repository."""
        if not uri.startswith(PREFIX):
            return self._other.one(uri)
        address = self._pin(uri)
        if address.path:
            hits, ignored = self._other.one(address.url)
            return [hit._replace(name=HubAddress.parse(hit.path).path) for hit in hits], ignored
        listing = list_dataset(address, self._client, self._attempt, self._config, self._split)
        self.datasets.append(listing)
        hits = [Found(address.at(file.path).url, file.path, file.size, file.version) for file in listing.files]
        return hits, listing.ignored

    def _pin(self, uri: str) -> HubAddress:
        address = HubAddress.parse(uri)
        key = (address.repo, address.revision)
        if key not in self._pinned:
            self._pinned[key] = self._attempt(uri, lambda: self._client.commit(address))
        return self._pinned[key].at(address.path)

    def _attempt(self, what: str, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        words = ""

        def question(port: Port, path: str, limits: Limits) -> Any:  # noqa: ANN401, ARG001
            nonlocal words
            try:
                return request()
            except Exception as error:
                words = explain(error)
                raise

        try:
            return self._edge.ask(what, question)
        except GaveUpError as gave:
            failure = SourceError(f"{redact(what)}: {words} ({gave})")
        raise failure
