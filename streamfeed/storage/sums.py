"""Checksums of a file: one of all of it, and short ones of its blocks, which tell where damage is."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

__all__ = ["Sums", "sums_of"]

_LEAST = 1 << 16
_MOST_BLOCKS = 2048


class Sums(NamedTuple):
    """SHA-256 of a file in hex, and the CRC-32 of each of its blocks of ``block`` bytes, eight hex digits each."""

    sha256: str
    block: int
    crcs: str

    def differing(self, other: Sums) -> Iterator[tuple[int, int]]:
        """Yield the ranges of bytes that are not the same in a file with the sums ``other``, neighbours as one."""
        first = last = -1
        for number in range(max(len(self.crcs), len(other.crcs)) // 8):
            place = slice(8 * number, 8 * number + 8)
            if self.crcs[place] == other.crcs[place]:
                continue
            if last != number:
                if first >= 0:
                    yield first * self.block, last * self.block
                first = number
            last = number + 1
        if first >= 0:
            yield first * self.block, last * self.block


def sums_of(file: BinaryIO, size: int) -> Sums:
    """Return the sums of a file of about ``size`` bytes (which decides the blocks), from its beginning on."""
    block = -(-max(_LEAST, size // _MOST_BLOCKS) // _LEAST) * _LEAST
    digest = hashlib.sha256()
    crcs: list[str] = []
    while data := file.read(block):
        while len(data) < block and (more := file.read(block - len(data))):
            data += more
        digest.update(data)
        crcs.append(f"{zlib.crc32(data):08x}")
    return Sums(digest.hexdigest(), block, "".join(crcs))
