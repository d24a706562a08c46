"""Gzip as a stream of decompressed steps: any number of members, padding of zeros, every damage named."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from isal import isal_zlib

from streamfeed.errors import CorruptShardError
from streamfeed.formats.pieces import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["gzip_steps"]

_READ = 1 << 17
_IsalError = cast("type[Exception]", isal_zlib.error)  # its stub says an instance
_OUTPUT = 1 << 18
_GZIP = 31  # window bits of a gzip member with its header and check sum


def gzip_steps(raw: RawFile, file: ShardFile, start: int) -> Iterator[Step]:
    """Yield the decompressed bytes of ``raw`` in steps of 256 KiB at most; there is no way in but ``start=0``.

    Raises :class:`CorruptShardError` with the compressed byte that was reached.
    """
    assert start == 0, "a gzip shard is entered at its start"
    members = _Members(raw, file)
    yield from members.steps()


class _Members:
    def __init__(self, raw: RawFile, file: ShardFile) -> None:
        self._raw = raw
        self._file = file
        self._data = b""
        self._position = 0  # compressed bytes read from the file, those in _data included

    def steps(self) -> Iterator[Step]:
        found = 0
        while self._more():
            if self._data[0] == 0 and found:
                self._padding()
                return
            yield from self._member()
            found += 1
        if not found:
            raise self._corrupt("the shard is empty, which no gzip file is", "write it again")

    def _member(self) -> Iterator[Step]:
        begin = self._position - len(self._data)
        unpacker = isal_zlib.decompressobj(_GZIP)
        stage = self._file.stats.stages.decompress
        output = b""
        while not unpacker.eof:
            if not self._data and len(output) < _OUTPUT and not self._more():
                cause = f"the gzip member that begins at byte {begin:,} is cut off here"
                raise self._corrupt(cause, "the shard is truncated: copy it again")
            try:
                with stage.busy:
                    output = unpacker.decompress(self._data, _OUTPUT)
            except _IsalError as error:
                raise self._damaged(begin, error) from error
            self._data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            if output:
                stage.count(1, len(output))
                yield Step(0, output)

    def _damaged(self, begin: int, error: Exception) -> CorruptShardError:
        if self._position - len(self._data) == begin and not self._data.startswith(b"\x1f\x8b"):
            if not begin:
                return self._corrupt("this is no gzip data", "name the shard by what it holds")
            return self._corrupt("there is garbage after the last gzip member", "cut it off, or copy the shard again")
        return self._corrupt(f"the gzip data is damaged at or before this byte ({error})", "copy the shard again")

    def _padding(self) -> None:
        while self._more():
            rest = self._data.lstrip(b"\0")
            if rest:
                self._data = rest
                raise self._corrupt("there is garbage after the last gzip member", "cut it off")
            self._data = b""

    def _more(self) -> bool:
        """Read on where nothing is left; in full blocks, since what is decoded before damage depends on the cut."""
        if not self._data:
            blocks = []
            missing = _READ
            while missing and (block := self._raw.read(missing)):
                blocks.append(block)
                missing -= len(block)
            self._data = b"".join(blocks)
            self._position += len(self._data)
        return bool(self._data)

    def _corrupt(self, cause: str, advice: str) -> CorruptShardError:
        return CorruptShardError(self._file.shard, f"byte {self._position - len(self._data)}", cause, advice)
