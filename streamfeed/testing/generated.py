"""The file system ``generated``: shards of any size that exist nowhere, made from their number as they are read."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from fsspec.spec import AbstractFileSystem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LINE_BYTES", "GeneratedFileSystem", "generated_bytes"]

LINE_BYTES = 4096
"""Every record is a line of JSON of this many bytes: ``{"id": "0000000012", "text": "..."}``."""

_WORDS = 1 << 14
_WORD_BYTES = 16
_HEAD = b'{"id": "%010d", "text": "'
_TAIL = b'"}\n'
_NAME = re.compile(r"part-(\d{5})\.jsonl")


class GeneratedFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """``generated://corpus/part-00000.jsonl`` and following: JSON Lines whose bytes follow from shard and offset.

    ``shards`` files of ``lines`` lines of :data:`LINE_BYTES` bytes. Ids count through all shards. Reading only; any
    folder name is that folder.
    """

    protocol = "generated"

    def __init__(self, shards: int = 16, lines: int = 1 << 14, **options: object) -> None:
        super().__init__(**options)
        self.shards = shards
        self.lines = lines

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("generated://").strip("/")

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """List the one folder there is."""
        path = self._strip_protocol(path)
        if _NAME.fullmatch(path.rpartition("/")[2]):
            return [self.info(path)] if detail else [path]
        found = [self._entry(f"{path}/part-{shard:05}.jsonl") for shard in range(self.shards)]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Describe a shard, or the folder."""
        path = self._strip_protocol(path)
        name = _NAME.fullmatch(path.rpartition("/")[2])
        if name is None:
            return {"name": path, "size": 0, "type": "directory"}
        if int(name[1]) >= self.shards:
            raise FileNotFoundError(path)
        return self._entry(path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return the bytes ``[start, end)`` of a shard."""
        entry = self.info(path)
        name = _NAME.fullmatch(entry["name"].rpartition("/")[2])
        assert name is not None
        begin, stop = start or 0, min(entry["size"], entry["size"] if end is None else end)
        return generated_bytes(int(name[1]) * self.lines, begin, stop)

    def _entry(self, path: str) -> dict[str, Any]:
        return {"name": path, "size": self.lines * LINE_BYTES, "type": "file", "ETag": f"{self.shards}x{self.lines}"}


def generated_bytes(first_id: int, start: int, stop: int) -> bytes:
    """Return the bytes ``[start, stop)`` of the shard whose first record has the id ``first_id``."""
    if stop <= start:
        return b""
    first, last = start // LINE_BYTES, (stop - 1) // LINE_BYTES
    data = _lines(first_id + first, last - first + 1).reshape(-1)
    return data[start - first * LINE_BYTES : stop - first * LINE_BYTES].tobytes()


def _lines(first: int, count: int) -> NDArray[np.uint8]:
    """Make lines, uint8 ``[count, LINE_BYTES]``: words drawn by a generator keyed by the first id of 64 lines."""
    lines = np.empty((count, LINE_BYTES), dtype=np.uint8)
    head = len(_HEAD % 0)
    words = (LINE_BYTES - head - len(_TAIL)) // _WORD_BYTES
    pool = _pool()
    for group in range(first // 64, (first + count - 1) // 64 + 1):
        drawn = np.random.Philox(key=group).random_raw(64 * words).reshape(64, words) % _WORDS
        begin, end = max(first, group * 64), min(first + count, group * 64 + 64)
        text = pool[drawn[begin - group * 64 : end - group * 64]].reshape(end - begin, -1)
        lines[begin - first : end - first, head : head + text.shape[1]] = text
        lines[begin - first : end - first, head + text.shape[1] : -len(_TAIL)] = ord(" ")
    lines[:, -len(_TAIL) :] = np.frombuffer(_TAIL, dtype=np.uint8)
    for index in range(count):
        lines[index, :head] = np.frombuffer(_HEAD % (first + index), dtype=np.uint8)
    return lines


@cache
def _pool() -> NDArray[np.uint8]:
    """Return the words, uint8 ``[_WORDS, _WORD_BYTES]``: letters, then spaces."""
    letters = np.random.Philox(key=0).random_raw(_WORDS * _WORD_BYTES).reshape(_WORDS, _WORD_BYTES)
    pool = (letters % 26 + ord("a")).astype(np.uint8)
    lengths = letters[:, 0] // 26 % (_WORD_BYTES - 3) + 2
    pool[np.arange(_WORD_BYTES)[None, :] >= lengths[:, None]] = ord(" ")
    return pool
