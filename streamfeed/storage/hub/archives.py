"""The names in a zip file on the Hub: ``datasets`` chooses a reader by them."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

from streamfeed.errors import SourceError

if TYPE_CHECKING:
    from streamfeed.storage.hub.address import HubAddress
    from streamfeed.storage.hub.client import HubClient, HubFile
    from streamfeed.storage.hub.listing import Attempt

__all__ = ["names_in_zip"]

_BLOCK = 64 << 10


def names_in_zip(address: HubAddress, file: HubFile, client: HubClient, attempt: Attempt) -> bytes:
    """Return a zip file whose members are named as those of ``file`` and are empty; reads its directory alone."""
    remote = _Remote(address.at(file.path), file, client, attempt)
    made = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BufferedReader(remote, _BLOCK)) as archive, zipfile.ZipFile(made, "w") as copy:
            for name in archive.namelist():
                copy.writestr(zipfile.ZipInfo(name), b"")
    except zipfile.BadZipFile as error:
        raise SourceError(f"{remote.address.url}: this is no zip file, or one cut off: {error}") from error
    return made.getvalue()


class _Remote(io.RawIOBase):
    def __init__(self, address: HubAddress, file: HubFile, client: HubClient, attempt: Attempt) -> None:
        self.address = address
        self._file = file
        self._client = client
        self._attempt = attempt
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        start, end = self._position, self._file.size
        stop = end if size is None or size < 0 else min(end, start + size)
        if stop <= start:
            return b""
        data: bytes = self._attempt(self.address.url, lambda: self._fetch(start, stop))
        self._position += len(data)
        return data

    def _fetch(self, start: int, stop: int) -> bytes:
        pieces: list[bytes] = []
        self._client.read(self.address, (start, stop), self._file, pieces.append)
        return b"".join(pieces)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
