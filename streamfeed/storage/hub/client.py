"""Requests to the Hub, each made once: who calls decides what is tried again.

``huggingface_hub`` has the session, the token and the errors; its own calls for trees and ranges try again by
themselves, up to five times, and its file system lists a folder in every process that opens a file of it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from streamfeed.storage.faults import ChangedError, RefusedError, ShortReadError
from streamfeed.storage.hub.address import HubAddress
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["HubClient", "HubFile", "hide_signatures"]


class HubFile(NamedTuple):
    """A file of a commit: its path in the repository, bytes, and what the Hub will say is its ETag."""

    path: str
    size: int
    version: str


class HubClient:
    """Talks to the Hub of one source in one process; keeps nothing but options.

    ``options`` are ``token`` (left out: the one that ``huggingface_hub`` finds) and ``endpoint`` (left out:
    ``HF_ENDPOINT``). A request without a byte for ``timeout_s`` seconds has failed. Every method raises what
    ``huggingface_hub`` raises, with the response at it where there is one.
    """

    def __init__(self, options: Mapping[str, Any] | None = None, timeout_s: float = 30.0) -> None:
        self._options = dict(options or {})
        self._timeout_s = timeout_s

    @property
    def token(self) -> str | bool | None:
        """The token that the options give, to be shown to nobody."""
        token: str | bool | None = self._options.get("token")
        return token

    @property
    def endpoint(self) -> str:
        """The Hub's address."""
        from huggingface_hub import constants

        return str(self._options.get("endpoint") or constants.ENDPOINT).rstrip("/")

    def commit(self, address: HubAddress) -> HubAddress:
        """Return the same address with its revision replaced by the commit that it means now; one request."""
        revision = quote(address.revision or "main", safe="")
        found = self._get(f"{self.endpoint}/api/datasets/{address.repo}/revision/{revision}").json()
        return HubAddress(address.repo, str(found["sha"]), address.path)

    def tree_url(self, address: HubAddress) -> str:
        """Return where :meth:`page` begins."""
        below = f"/{quote(address.path, safe='')}" if address.path else ""
        revision = quote(address.revision or "main", safe="")
        return f"{self.endpoint}/api/datasets/{address.repo}/tree/{revision}{below}?recursive=true&expand=false"

    def look(self, address: HubAddress) -> HubFile | bool:
        """Return the file at the address' path, else whether there is a folder; one request."""
        revision = quote(address.revision or "main", safe="")
        url = f"{self.endpoint}/api/datasets/{address.repo}/paths-info/{revision}"
        found = self._ask("POST", url, data={"paths": [address.path], "expand": False}).json()
        entry = next((entry for entry in found if entry["path"] == address.path), None)
        return _file(entry) if entry is not None and entry["type"] == "file" else entry is not None

    def page(self, url: str) -> tuple[list[HubFile], str | None]:
        """Return the files of one page of a tree, and where the next page is."""
        response = self._get(url)
        files = [_file(entry) for entry in response.json() if entry["type"] == "file"]
        return files, response.links.get("next", {}).get("url")

    def read(
        self, address: HubAddress, span: tuple[int, int], listed: HubFile, take: Callable[[bytes], object]
    ) -> None:
        """Give the bytes ``[start, stop)`` of a listed file to ``take`` as they arrive.

        Raises :class:`~streamfeed.storage.faults.ChangedError` where the Hub answers with another file than listed,
        :class:`~streamfeed.storage.faults.RefusedError` where something in between does not know ranges,
        :class:`~streamfeed.storage.faults.ShortReadError` where less came.
        """
        start, stop = span
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        with self._stream(self._file_url(address), headers) as response:
            if response.status_code != 206 and span != (0, listed.size):
                raise RefusedError("the Hub's answer is the whole file where a range was asked for")
            said, _, total = str(response.headers.get("Content-Range") or "").rpartition("/")
            etag = _etag(response)
            if (total.isdigit() and int(total) != listed.size) or (listed.version and etag not in {"", listed.version}):
                raise ChangedError
            if response.status_code == 206 and not said.strip().startswith(f"bytes {start}-"):
                raise RefusedError("the Hub's answer is another range than it was asked for")
            missing = stop - start
            for piece in response.iter_raw():  # as stored, whatever the answer says of its encoding
                take(piece[:missing])
                missing -= min(missing, len(piece))
            if missing:
                raise ShortReadError

    def content(self, address: HubAddress) -> bytes:
        """Return a small file, whole."""
        content: bytes = self._get(self._file_url(address)).content
        return content

    def _file_url(self, address: HubAddress) -> str:
        revision = quote(address.revision or "main", safe="")
        return f"{self.endpoint}/datasets/{address.repo}/resolve/{revision}/{quote(address.path)}"

    def _get(self, url: str) -> Any:  # noqa: ANN401
        return self._ask("GET", url)

    def _ask(self, method: str, url: str, **body: Any) -> Any:  # noqa: ANN401
        hub = _utils()
        headers = hub.build_hf_headers(token=self.token)
        response = hub.get_session().request(method, url, headers=headers, timeout=self._timeout_s, **body)
        hub.hf_raise_for_status(response)
        return response

    @contextmanager
    def _stream(self, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
        hub = _utils()
        sent = {**hub.build_hf_headers(token=self.token), **headers}
        with hub.get_session().stream("GET", url, headers=sent, timeout=self._timeout_s) as response:
            if response.is_error:
                response.read()
            hub.hf_raise_for_status(response)
            yield response


def _utils() -> Any:  # noqa: ANN401
    import huggingface_hub.utils

    hide_signatures()
    return huggingface_hub.utils


def hide_signatures() -> None:
    """Keep signatures out of this process' logs, whoever sends the requests to the Hub."""
    for name in ("httpx", "httpx2"):  # which of them is the version's own affair
        log = logging.getLogger(name)
        if not any(isinstance(one, _Redacted) for one in log.filters):
            log.addFilter(_Redacted())


class _Redacted(logging.Filter):
    """Takes signatures out of the URLs that the HTTP client logs, at level INFO, for every request."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(redact(str(arg)) if "://" in str(arg) else arg for arg in record.args)
        return True


def _file(entry: Mapping[str, Any]) -> HubFile:
    large = entry.get("lfs") or {}
    return HubFile(str(entry["path"]), int(entry["size"]), str(large.get("oid") or entry["oid"]))


def _etag(response: Any) -> str:  # noqa: ANN401
    """Return the ETag that the Hub gives; a large file's is named by the redirect, its own store has another."""
    first = response.history[0] if response.history else response
    etag = first.headers.get("X-Linked-Etag") or ("" if response.history else first.headers.get("ETag") or "")
    return str(etag).removeprefix("W/").strip('"')
