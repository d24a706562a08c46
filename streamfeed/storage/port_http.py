"""HTTP through fsspec's session: ranged reads whose answers are looked at before a byte of them is believed."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from streamfeed.storage.client import Entry, Limits, Progress, run_async
from streamfeed.storage.faults import ChangedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HttpPort"]

_STEP = 1 << 18
_SMALL = 8 << 20
"""Of a server that ignores ranges, files up to this are read from their start every time; larger ones not at all."""

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_PLAIN = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")


class HttpPort:
    """Asks for ranges of what is stored, not of what a server might make of it: no encoding, no transformation.

    A version is the strong ETag; without one, bytes and time of the last change, where the server says it.
    """

    conditional = True

    def __init__(self, fs: Any) -> None:  # noqa: ANN401
        self._fs = fs

    def read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:
        """Read a range of a file of the version known."""
        run_async(self._fs, self._read(path, start, stop, known, into, limits), limits.whole(stop - start) * 4)

    async def _read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:
        condition = {"If-Match": known.version} if known.version.startswith('"') else {}
        async with asyncio.timeout(limits.stall_s) as limit:
            async with await self._get(path, {"Range": f"bytes={start}-{stop - 1}", **condition}) as answer:
                passed = _skipped(answer, start, known)
                missing = stop - start
                while missing and (data := await answer.content.read(_STEP)):
                    limit.reschedule(asyncio.get_running_loop().time() + limits.stall_s)
                    dropped = min(passed, len(data))
                    passed -= dropped
                    kept = data[dropped : dropped + missing]
                    if kept:
                        into.add(kept)
                        missing -= len(kept)

    async def _get(self, url: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401
        options = dict(self._fs.kwargs)
        own = {**(options.pop("headers", None) or {}), "Accept-Encoding": "identity", **headers}
        session = await self._fs.set_session()
        answer = await session.get(_encoded(url), headers=own, **options)
        if answer.status >= 400 and answer.status != 416:
            answer.close()
            answer.raise_for_status()
        return answer

    def info(self, path: str, limits: Limits) -> Entry:
        """Return size and version, from the headers of one byte: what is signed for GET answers nothing else."""
        if path.partition("?")[0].endswith("/"):
            return Entry(path, 0, "", folder=True)
        return run_async(self._fs, self._info(path), limits.stall_s)

    async def _info(self, path: str) -> Entry:
        async with await self._get(path, {"Range": "bytes=0-0"}) as answer:
            answer.close()  # a server that ignores ranges would send all of it
            size = _total(answer)
            if size is None and answer.status == 416:
                answer.raise_for_status()
            if size is None:
                raise RefusedError("the server does not say how large the file is, so it cannot be read in parts")
            return Entry(path, size, _version(answer.headers, size))

    def tree(self, path: str, stem: str, token: str, limits: Limits) -> None:
        """Return None: an index page shows one folder."""

    def folder(self, path: str, limits: Limits) -> list[Entry]:
        """Return the links of an index page that lead below it; their sizes are not known (-1)."""
        found = run_async(self._fs, self._fs._ls(path), limits.stall_s)  # noqa: SLF001 - ls(), with our time limit
        names = sorted({str(entry["name"]) for entry in found} - {path})
        return [Entry(name, 0 if name.endswith("/") else -1, "", folder=name.endswith("/")) for name in names]


def _encoded(url: str) -> Any:  # noqa: ANN401
    """Return the URL as it is where it is one (a signature covers every character), else with the rest escaped."""
    from yarl import URL

    return URL(url, encoded=_PLAIN.fullmatch(url) is not None)


def _skipped(answer: Any, start: int, known: Entry) -> int:  # noqa: ANN401
    """Return how many bytes of the answer come before ``start``; raise where it is no answer to what was asked."""
    if answer.status == 416:
        raise ChangedError
    total = _total(answer)
    found = _version(answer.headers, known.size)
    if (total is not None and total != known.size) or (known.version and found and found != known.version):
        encoding = str(answer.headers.get("Content-Encoding", "identity")).lower()
        if answer.status == 200 and encoding not in {"", "identity"}:
            raise RefusedError(f"the server sends it compressed ({encoding}) though it was asked not to")
        raise ChangedError
    if answer.status == 206:
        match = _RANGE.fullmatch(str(answer.headers.get("Content-Range", "")).strip())
        if match is None or match[1] is None or int(match[1]) != start:
            raise RefusedError("the server answers another range than it was asked for")
        return 0
    if answer.status != 200:
        raise RefusedError(f"the server answers HTTP {answer.status}, not the bytes")
    if known.size > _SMALL:
        raise RefusedError("the server ignores ranges and sends the whole file; serve it by one that knows them")
    return start


def _total(answer: Any) -> int | None:  # noqa: ANN401
    """Return the size of the whole file as an answer says it."""
    if answer.status == 200:
        length = str(answer.headers.get("Content-Length", ""))
        return int(length) if length.isdecimal() else None
    match = _RANGE.fullmatch(str(answer.headers.get("Content-Range", "")).strip())
    return int(match[3]) if match is not None and match[3].isdecimal() else None


def _version(headers: Mapping[str, str], size: int) -> str:
    etag = str(headers.get("ETag", "")).strip()
    if etag and not etag.startswith("W/"):
        return etag
    changed = str(headers.get("Last-Modified", "")).strip()
    return f"{size}-{changed}" if changed else ""
