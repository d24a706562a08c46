"""What rows of any form are as JSON texts, as dictionaries and as a table."""

from __future__ import annotations

import math
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

import orjson
import pyarrow as pa

from streamfeed.convert.rows import Rows, joined, samples_of
from streamfeed.convert.schema import MixedTypesError, table_of
from streamfeed.convert.tars import record_of
from streamfeed.errors import RecordError
from streamfeed.formats.fields import type_name
from streamfeed.formats.jsontext import object_in_json
from streamfeed.formats.protocol import Bad
from streamfeed.formats.whole import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Origin", "Shown"]

Record = dict[str, object]
_OPTIONS = orjson.OPT_NON_STR_KEYS  # the keys of a map column


class Origin:
    """Where some rows come from, for messages: row ``i`` stands at cursor ``(seek, skip + i)`` of the shard ``shown``.

    ``seek`` is the format's own: a byte, a row group, a batch.
    """

    def __init__(self, shown: str, seek: int, skip: int) -> None:
        self.shown = shown
        self.seek = seek
        self.skip = skip

    def ahead(self, rows: int) -> Origin:
        """Return the origin of the rows behind the first ``rows``."""
        return Origin(self.shown, self.seek, self.skip + rows)

    def fail(self, index: int, cause: str, advice: str = "") -> NoReturn:
        """Raise :class:`RecordError` for row ``index``."""
        where = f"record {self.skip + index}" + (f" behind {self.seek}" if self.seek else "")
        raise RecordError(self.shown, where, cause, advice or "mend it, or leave it out")


class Shown:
    """Rows of any form as what a writer takes; the text that a form keeps without a name is called ``text``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def dicts(self, rows: Rows, origin: Origin) -> list[Record]:
        """Return records as dictionaries; raises :class:`RecordError` for what is no record."""
        if rows.form == "columns":
            found: list[Any] = list(rows_of(rows.batch))
            for index, record in enumerate(found):
                bad = next((value for value in record.values() if isinstance(value, Bad)), None)
                if bad is not None:
                    origin.fail(index, bad.cause, bad.advice)
            return found
        found = (
            [_loaded(line) for line in rows.texts]
            if rows.form == "json"
            else [record_of(sample, self._text) for sample in samples_of(rows)]
        )
        for index, record in enumerate(found):
            if not isinstance(record, dict):
                bad = record if isinstance(record, Bad) else Bad("", f"the record is {type_name(record)}, no object")
                origin.fail(index, bad.cause, bad.advice)
        return found

    def lines(self, rows: Rows, origin: Origin) -> list[bytes]:
        """Return records as JSON texts without a newline; what is JSON already stays as it is written."""
        if rows.form == "json":
            self.dicts(rows, origin)
            return [line.strip() for line in rows.texts]
        return [self.line(record, origin, index) for index, record in enumerate(self.dicts(rows, origin))]

    def line(self, record: Mapping[str, object], origin: Origin, index: int = 0) -> bytes:
        """Return one record as JSON text; raises :class:`RecordError` where JSON cannot say it."""
        try:
            line = orjson.dumps(record, _said, _OPTIONS)
        except TypeError as error:
            advice = "convert to parquet or tar, which hold bytes"
            origin.fail(index, f"JSON cannot say it: {error.__cause__ or error}", advice)
        if b"null" in line and _has_strange_float(record):
            origin.fail(index, "JSON cannot say NaN or infinity", "convert to parquet, or write null in their place")
        return line

    def table(self, rows: Rows, origin: Origin, schema: Any = None) -> Any:  # noqa: ANN401
        """Return records as an Arrow table, by ``schema`` where there is one; raises :class:`RecordError`."""
        if rows.form == "columns" and schema is None:
            return pa.Table.from_batches([rows.batch])
        try:
            return table_of(self.dicts(rows, origin), schema)
        except MixedTypesError as error:
            self._find(rows, origin, error)

    def _find(self, rows: Rows, origin: Origin, error: MixedTypesError) -> NoReturn:
        """Raise the error at the first record that does not go with those before it."""
        low, high = 0, len(rows)
        while low + 1 < high:
            middle = (low + high) // 2
            try:
                table_of(self.dicts(rows.part(0, middle), origin))
                low = middle
            except MixedTypesError:
                high = middle
        origin.fail(max(0, high - 1), str(error), "convert to jsonl.zst or tar, which take any record, or mend it")

    def common(self, rows: Sequence[Rows], origin: Origin) -> list[Rows]:
        """Return rows joined; where there are several forms, all of them as JSON."""
        from streamfeed.convert.rows import json_rows

        if len({one.form for one in rows}) > 1:
            rows = [one if one.form == "json" else json_rows(self.lines(one, origin)) for one in rows]
        return joined(rows)


def _loaded(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return object_in_json(line, "", "the line")


def _said(value: object) -> object:
    """Return what JSON can say in place of a value of another type."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise TypeError("bytes that are no text") from None
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")


def _has_strange_float(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_strange_float, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_strange_float, value))
