"""Records on their way from one format to another, as Arrow batches: cheap to cut, to send and to keep on a disk.

Three forms, so that nothing is taken apart that is not looked at:

* ``json``: the column ``json``, the JSON text of a record in each row;
* ``samples``: a tar's samples, with the columns ``key``, ``names`` (extensions) and ``data`` of their members;
* ``columns``: the columns of a table, each as its source has it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["SAMPLES", "Form", "Rows", "Sample", "joined", "json_rows", "sample_rows", "samples_of"]

Form = Literal["json", "samples", "columns"]

_JSON = pa.schema([("json", pa.large_binary())])
SAMPLES = pa.schema(
    [("key", pa.binary()), ("names", pa.large_list(pa.binary())), ("data", pa.large_list(pa.large_binary()))]
)


class Sample(NamedTuple):
    """A tar's sample: its key, and its members by extension. Names need not be UTF-8."""

    key: str
    members: dict[str, bytes]


class Rows:
    """Consecutive records of one form: an Arrow ``RecordBatch``, which is made of JSON texts when it is asked for."""

    __slots__ = ("_batch", "_texts", "form")

    def __init__(self, form: Form, batch: Any, texts: list[bytes] | None = None) -> None:  # noqa: ANN401
        self.form = form
        self._batch = batch
        self._texts = texts

    def __len__(self) -> int:
        return int(self._batch.num_rows) if self._texts is None else len(self._texts)

    @property
    def batch(self) -> Any:  # noqa: ANN401
        """The rows in Arrow's memory."""
        if self._batch is None:
            self._batch = pa.RecordBatch.from_arrays([pa.array(self._texts, pa.large_binary())], schema=_JSON)
        return self._batch

    @property
    def texts(self) -> list[bytes]:
        """The JSON texts of rows of the form ``json``."""
        if self._texts is None:
            self._texts = _bytes_of(self._batch.column(0))
        return self._texts

    @property
    def nbytes(self) -> int:
        """The bytes that the rows take in memory, about."""
        return int(self._batch.nbytes) if self._texts is None else sum(map(len, self._texts))

    def part(self, start: int, stop: int) -> Rows:
        """Return rows ``start`` to ``stop - 1``, without a copy."""
        if self._texts is not None:
            return Rows(self.form, None, self._texts[start:stop])
        return Rows(self.form, self._batch.slice(start, stop - start))

    def take(self, order: NDArray[np.int64]) -> Rows:
        """Return the rows with these numbers, in their order; copies them."""
        if self._texts is not None:
            return Rows(self.form, None, [self._texts[index] for index in order.tolist()])
        return Rows(self.form, self._batch.take(pa.array(order)))


def json_rows(lines: list[bytes]) -> Rows:
    """Return rows of JSON texts."""
    return Rows("json", None, lines)


def sample_rows(samples: Sequence[Sample]) -> Rows:
    """Return rows of samples."""
    keys = [sample.key.encode(errors="surrogateescape") for sample in samples]
    names = [[name.encode(errors="surrogateescape") for name in sample.members] for sample in samples]
    data = [list(sample.members.values()) for sample in samples]
    return Rows("samples", pa.RecordBatch.from_pydict({"key": keys, "names": names, "data": data}, schema=SAMPLES))


def samples_of(rows: Rows) -> list[Sample]:
    """Return the samples of rows of the form ``samples``."""
    keys, names, data = rows.batch.columns
    bounds = names.offsets.to_pylist()
    first = bounds[0]
    flat_names = [name.decode(errors="surrogateescape") for name in _bytes_of(names.flatten())]
    flat_data = _bytes_of(data.flatten())
    return [
        Sample(
            key.decode(errors="surrogateescape"),
            dict(zip(flat_names[start - first : stop - first], flat_data[start - first : stop - first], strict=True)),
        )
        for key, (start, stop) in zip(_bytes_of(keys), pairwise(bounds), strict=True)
    ]


def joined(rows: Sequence[Rows]) -> list[Rows]:
    """Return rows in order, those that follow each other and are of one form and schema as one."""
    found: list[list[Rows]] = []
    for some in rows:
        last = found[-1][-1] if found else None
        if last is not None and last.form == some.form and last.batch.schema.equals(some.batch.schema):
            found[-1].append(some)
        else:
            found.append([some])
    return [
        group[0] if len(group) == 1 else Rows(group[0].form, pa.concat_batches([one.batch for one in group]))
        for group in found
    ]


def _bytes_of(array: Any) -> list[bytes]:  # noqa: ANN401
    """Return the values of a binary array without nulls; by slices of its data, several times faster than Arrow's."""
    _, offsets, data = array.buffers()
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(offsets, dtype=width)[array.offset : array.offset + len(array) + 1].tolist()
    view = memoryview(b"" if data is None else data)
    return [bytes(view[start:stop]) for start, stop in pairwise(bounds)]
