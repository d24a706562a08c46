"""Writers of shards: rows in, a local file out. What they write is a function of the records, however they are cut."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, NamedTuple, Protocol

import zstandard

from streamfeed.convert.rows import samples_of
from streamfeed.convert.tars import KEY, Keys, members_of
from streamfeed.formats.marks import Counted, Mark

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from streamfeed.convert.forms import Origin, Shown
    from streamfeed.convert.rows import Rows

__all__ = ["JsonLinesWriter", "TarShardWriter", "Thinned", "Writer", "Written"]

FRAME = 1 << 20
"""Bytes of lines in a zstd frame: a frame is a way in."""

_LEVEL = 3
_MODE = 0o644
_LONGEST = 100  # bytes of a name that a header holds
_LARGEST = 1 << 33  # bytes of a member whose size eleven octal digits do not hold
_SPACING = 1 << 20
_MOST_MARKS = 1000


class Written(NamedTuple):
    """What a finished shard holds."""

    counted: Counted
    tokens: int | None = None


class Writer(Protocol):
    """Writes one shard."""

    def add(self, rows: Rows, origin: Origin) -> None:
        """Write the next rows; raises :class:`~streamfeed.errors.RecordError` for what the format cannot hold."""

    def close(self) -> Written:
        """Finish the file."""

    def abandon(self) -> None:
        """Close the file as it is, unfinished; safe behind :meth:`close`."""


class Thinned:
    """Marks as they are found, at most a thousand or two of them, with the first."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._spacing = _SPACING

    def add(self, mark: Mark) -> None:
        """Take a mark, unless it is near the one before."""
        if self._marks and mark.nbytes - self._marks[-1].nbytes < self._spacing:
            return
        self._marks.append(mark)
        if len(self._marks) > 2 * _MOST_MARKS:
            self._spacing *= 2
            self._marks = self._marks[::2]

    def counted(self, records: int, nbytes: int, *, regular: bool = False) -> Counted:
        """Return the marks of a shard of that much."""
        return Counted(records, nbytes, tuple(self._marks or [Mark(0, 0, 0, 0)]), regular=regular)


class JsonLinesWriter:
    """JSON Lines in zstd frames of about 1 MiB of whole lines, each with its size and check sum."""

    def __init__(self, path: Path, shown: Shown) -> None:
        self._file = path.open("wb")
        self._shown = shown
        self._packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
        self._held: list[bytes] = []
        self._size = 0  # of what is held
        self._records = 0  # in finished frames
        self._nbytes = 0
        self._marks = Thinned()

    def add(self, rows: Rows, origin: Origin) -> None:
        """Write the next rows."""
        for line in self._shown.lines(rows, origin):
            self._held.append(line)
            self._size += len(line) + 1
            if self._size >= FRAME:
                self._frame()

    def _frame(self) -> None:
        self._marks.add(Mark(self._records, self._nbytes, self._file.tell(), 0))
        self._file.write(self._packer.compress(b"\n".join([*self._held, b""])))
        self._records += len(self._held)
        self._nbytes += self._size - len(self._held)
        self._held, self._size = [], 0

    def close(self) -> Written:
        """Finish the file."""
        if self._held or not self._records:
            self._frame()
        self._file.close()
        return Written(self._marks.counted(self._records, self._nbytes))

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()


class Members:
    """Adds members to a ``tarfile``, byte for byte as it does, at a fifth of the time where nothing is unusual.

    What a header says beside name and size is always the same here, and the archive needs to remember no member.
    """

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._slowly = archive.addfile
        empty = tarfile.TarInfo("")
        empty.mode = _MODE
        header = bytearray(empty.tobuf(tarfile.GNU_FORMAT))
        header[148:156] = b" " * 8
        self._before, self._between, self._behind = bytes(header[100:124]), bytes(header[136:148]), bytes(header[156:])
        self._rest = sum(header[148:])

    def add(self, member: tarfile.TarInfo, data: BinaryIO) -> None:
        """Add a member of ``member.size`` bytes."""
        name = member.name.encode(errors="surrogateescape")
        if len(name) > _LONGEST or member.size >= _LARGEST:
            self._slowly(member, data)
            self._archive.members.clear()  # type: ignore[attr-defined]
            return
        front = name.ljust(100, b"\0") + self._before + b"%011o\0" % member.size + self._between
        checksum = sum(front) + self._rest
        padding = -member.size % tarfile.BLOCKSIZE
        written = b"".join((front, b"%06o\0 " % checksum, self._behind, data.read(), bytes(padding)))
        self._archive.fileobj.write(written)
        self._archive.offset += len(written)


class TarShardWriter:
    """A WebDataset tar by ``webdataset``'s writer, without times and owners: the same records are the same file.

    Samples of a tar keep their members as they are.
    """

    def __init__(self, path: Path, shown: Shown, text: str, first: int) -> None:
        from webdataset.writer import TarWriter

        self._file = path.open("wb")
        self._archive = TarWriter(self._file, user="", group="", mode=_MODE, encoder=False, mtime=0)
        self._archive.tarstream.format = tarfile.GNU_FORMAT
        self._archive.tarstream.fileobj = self._file  # not by way of a stream that cuts all data into 10 kB
        self._archive.tarstream.addfile = Members(self._archive.tarstream).add
        self._shown = shown
        self._text = text
        self._first = first
        self._keys = Keys()
        self._records = self._nbytes = 0
        self._marks = Thinned()

    def add(self, rows: Rows, origin: Origin) -> None:
        """Write the next rows."""
        if rows.form == "samples":
            for sample in samples_of(rows):
                self._sample(sample.key, sample.members)
            return
        for index, record in enumerate(self._shown.dicts(rows, origin)):

            def said(value: object, index: int = index) -> bytes:
                return self._shown.line(value, origin, index)  # type: ignore[arg-type]

            try:
                members = members_of(record, self._text, said)
            except UnicodeEncodeError as error:
                origin.fail(index, f"the field {self._text!r} is not Unicode: {error.reason} at {error.start}")
            self._sample(record.get(KEY), members)

    def _sample(self, wanted: object, members: dict[str, bytes]) -> None:
        key = self._keys.key(wanted, self._first + self._records)
        self._marks.add(Mark(self._records, self._nbytes, self._archive.tarstream.offset, 0))
        self._nbytes += self._archive.write({"__key__": key, **members})
        self._records += 1

    def close(self) -> Written:
        """Finish the file."""
        self._archive.close()
        self._file.close()
        return Written(self._marks.counted(self._records, self._nbytes, regular=True))

    def abandon(self) -> None:
        """Close the file."""
        if not self._file.closed:
            self._archive.close()
            self._file.close()
