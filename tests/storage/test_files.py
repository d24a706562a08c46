"""A shard as a file: counted, closed, and refused when it is not the planned one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfeed.errors import ReadError
from streamfeed.storage.files import ShardFile

if TYPE_CHECKING:
    from pathlib import Path


def test_every_byte_read_and_every_open_is_counted(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    file = ShardFile(str(tmp_path / "x"), 10)
    with file.open() as raw:
        raw.seek(4)
        assert raw.read(3) == b"456"
        assert raw.tell() == 7
        assert raw.read(100) == b"789"
        assert raw.read(100) == b""
        assert (file.stats.opens, file.stats.reads, file.stats.bytes) == (1, 3, 6)
        raw.seek(2)
        assert raw.read() == b"23456789"
        assert raw.readinto(buffer := bytearray(4)) == 0
        raw.seek(8)
        assert (raw.readinto(buffer), bytes(buffer)) == (2, b"89\0\0")
    assert file.stats.bytes == 6 + 8 + 2
    assert raw.closed


def test_a_shard_of_another_size_than_planned_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    with pytest.raises(ReadError, match="has 10 bytes now and had 9"):
        ShardFile(str(tmp_path / "x"), 9).open()


def test_a_shard_that_is_gone_is_a_read_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="cannot be opened"):
        ShardFile(str(tmp_path / "gone"), 9).open()
