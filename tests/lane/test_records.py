"""The records of a unit: what was overwritten while it was read is a failure, whatever its bytes look like."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from streamfeed.errors import CorruptShardError, ReadError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.formats.shape import Shape
from streamfeed.lane.records import UnitRecords
from streamfeed.plan.shards import Stride, Unit
from streamfeed.storage.files import local_version
from streamfeed.storage.store import Store

if TYPE_CHECKING:
    from pathlib import Path

LINES = b"".join(b'{"text": "%d"}\n' % number for number in range(200_000))
BROKEN = gzip.compress(LINES)[:-2000]


def opened(path: Path) -> UnitRecords:
    found = path.stat()
    unit = Unit(str(path), found.st_size, local_version(found), "jsonl.gz", WHOLE, Stride())
    return UnitRecords(unit, make_format("jsonl.gz", Shape("text")), Store(), Cursor(), 0)


def drain(records: UnitRecords) -> None:
    while records.fill():
        records.take()


def test_a_broken_shard_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(BROKEN)
    with pytest.raises(CorruptShardError):
        drain(opened(path))


def test_a_shard_that_breaks_by_being_overwritten_has_changed_and_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(LINES))
    records = opened(path)
    assert records.fill()
    path.write_bytes(BROKEN)  # in place: the open file is the new one
    with pytest.raises(ReadError, match=r"x\.jsonl\.gz: has [\d,]+ bytes now and had"):
        drain(records)
