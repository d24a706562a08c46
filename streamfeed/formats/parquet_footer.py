"""What a Parquet footer says of column chunks, asked so that damage is an error and never the process's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

import pyarrow as pa
import pyarrow.parquet as pq

from streamfeed.errors import CorruptShardError
from streamfeed.storage.raw import SizedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from streamfeed.storage.files import ShardFile

__all__ = ["BROKEN", "Footer", "first_line"]

BROKEN = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises over damage; the store's own failures are ReadError, which is none of these."""


class Footer:
    """The row groups of a footer, each tried before its chunks of ``columns`` (None: all) are looked at.

    pyarrow's ``RowGroupMetaData.column`` lets no C++ exception through: one over a chunk whose sizes contradict the
    schema (one byte of it was flipped, say) aborts the process. Its readers make the same objects first, and turn the
    exception into one of Python's. So every row group is begun to be read from a file without data; no byte is read.
    """

    def __init__(self, shard: Any, file: ShardFile, columns: Sequence[str] | None) -> None:  # noqa: ANN401
        self._metadata = shard.metadata
        self._file = file
        self._columns = columns
        self._trial: Any = None
        self._found: dict[int, str] = {}

    def sound(self, number: int) -> bool:
        """Return whether the columns of row group ``number`` may be asked for."""
        if number not in self._found:
            self._found[number] = self._tried(number)
        return not self._found[number]

    def group(self, number: int) -> Any:  # noqa: ANN401
        """Return the metadata of row group ``number``, whose columns may be asked for.

        Raises :class:`CorruptShardError` where they contradict the schema.
        """
        if not self.sound(number):
            cause = f"the footer contradicts itself ({self._found[number]})"
            raise CorruptShardError(self._file.shard, f"row group {number}", cause, "copy the shard again")
        return self._metadata.row_group(number)

    def _tried(self, number: int) -> str:
        """Return what pyarrow finds wrong with a row group, empty for nothing."""
        try:
            if self._trial is None:
                blank = _Blank(self._file.size)
                self._trial = pq.ParquetFile(blank, metadata=self._metadata, buffer_size=1, pre_buffer=False)
            next(self._trial.iter_batches(1, row_groups=[number], columns=self._columns, use_threads=False), None)
        except _NoDataError:
            return ""
        except BROKEN as error:
            return first_line(error)
        return ""


class _NoDataError(Exception):
    """Reading got as far as to the data."""


class _Blank(SizedFile):
    """A file of some size without data."""

    def readinto(self, buffer: Buffer, /) -> Never:  # noqa: ARG002
        raise _NoDataError

    def read_at(self, offset: int, size: int) -> Never:  # noqa: ARG002
        raise _NoDataError


def first_line(error: BaseException) -> str:
    """Return the first line of what ``error`` says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
