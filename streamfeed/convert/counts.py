"""How many records a shard has, and where it can be entered: what cutting and splitting take."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfeed.convert.reading import WholeRecords
from streamfeed.formats.marks import Counted, Mark
from streamfeed.formats.parquet import row_groups
from streamfeed.formats.protocol import WHOLE, Extent
from streamfeed.formats.samples import index_of
from streamfeed.formats.tokens import token_batches

if TYPE_CHECKING:
    from streamfeed.storage.files import ShardFile

__all__ = ["count"]

_SPACING = 1 << 20
_MOST_MARKS = 1000


def count(file: ShardFile, kind: str, extent: Extent = WHOLE) -> Counted:
    """Count the records of ``extent``: by the footer where there is one, else by reading it; decodes no record.

    Raises what reading does.
    """
    if kind == "parquet":
        return _by_groups(row_groups(file), extent)
    if kind == "tokens":
        return _by_groups([(one.documents, one.nbytes, one.begin) for one in token_batches(file)], extent)
    if kind == "tar" and extent == WHOLE:
        return _by_headers(file)
    spacing = max(_SPACING, file.size // _MOST_MARKS)
    marks: list[Mark] = []
    records = nbytes = 0
    for part in WholeRecords(kind).sizes(file, extent):
        if not marks:
            marks.append(Mark(0, 0, part.seek, part.skip))
        elif part.seek != marks[-1].seek and nbytes - marks[-1].nbytes >= spacing:
            marks.append(Mark(records, nbytes, part.seek, part.skip))
        records += part.records
        nbytes += part.nbytes
    return Counted(records, nbytes, tuple(marks or [Mark(0, 0, 0, 0)]))


def _by_headers(file: ShardFile) -> Counted:
    with closing(file.open()) as raw:
        raw.expect(0, file.size)
        index = index_of(raw, file)
    if index.failure is not None:
        raise index.failure
    marks: list[Mark] = []
    spacing = max(_SPACING, file.size // _MOST_MARKS)
    nbytes = 0
    for number, sample in enumerate(index.samples):
        if not marks or nbytes - marks[-1].nbytes >= spacing:
            marks.append(Mark(number, nbytes, sample.begin, 0))
        nbytes += sum(member.size for member in sample.members.values())
    return Counted(len(index.samples), nbytes, tuple(marks or [Mark(0, 0, 0, 0)]), regular=index.regular)


def _by_groups(groups: list[tuple[int, int, int]], extent: Extent) -> Counted:
    marks: list[Mark] = []
    places: list[int] = []
    records = nbytes = 0
    stop = len(groups) if extent.stop < 0 else extent.stop
    for group in range(extent.start, stop):
        rows, size, begin = groups[group]
        if rows:
            marks.append(Mark(records, nbytes, group, 0))
            places.append(begin)
        records += rows
        nbytes += size
    return Counted(records, nbytes, tuple(marks or [Mark(0, 0, 0, 0)]), tuple(places))
