"""Conversions of small corpora, and what is in the shards that they leave."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from streamfeed import Source
from streamfeed.convert.forms import Origin, Shown
from streamfeed.convert.reading import WholeRecords
from streamfeed.convert.run import Conversion
from streamfeed.convert.settings import Settings
from streamfeed.convert.tars import KEY
from streamfeed.formats.detect import kind_of
from streamfeed.formats.kinds import without_nulls
from streamfeed.formats.manifest import MANIFEST, Manifest
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.storage.files import ShardFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TARGETS = ("parquet", "tar", "jsonl.zst")


def records_for_tests(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Records with text, numbers, nested fields, nulls, and fields that some do not have."""
    return [
        {
            "id": i,
            "text": f"id={i}; " + ("naïve 漢字 🙂 \u2028" if i % 3 else "plain") * (i % 5),
            "score": i / 4,
            "meta": {"lang": "de" if i % 2 else None, "tags": [f"t{j}" for j in range(i % 3)]},
            **({"extra": True} if i % 7 == 0 else {}),
        }
        for i in range(first, first + count)
    ]


def convert(source: Any, dest: Path | str, to: str, **options: Any) -> Manifest:
    """Convert in this process unless an ``engine`` is given; other options are the settings'."""
    return conversion(source, dest, to, **options).run()


def conversion(source: Any, dest: Path | str, to: Any, **options: Any) -> Conversion:
    """The conversion that :func:`convert` runs."""
    names = ("engine", "overwrite", "dest_options", "progress")
    own = {name: options.pop(name) for name in names if name in options}
    of = source if isinstance(source, Source) else Source(str(source))
    return Conversion(of, str(dest), Settings(to, **options), **own)


def files(folder: Path) -> dict[str, str]:
    """The hash of every file, by name."""
    paths = [path for path in sorted(folder.rglob("*")) if not path.is_dir()]
    assert all(path.is_file() for path in paths)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def manifest_of(folder: Path) -> Manifest:
    return Manifest.from_bytes((folder / MANIFEST).read_bytes(), str(folder))


def contents(folder: Path, text: str = "text") -> list[dict[str, Any]]:
    """The records of a folder's shards in order: without nulls, and without the key that a tar gives."""
    names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)
    return [record for name in names for record in records_in(folder / name, text)]


def records_in(path: Path, text: str = "text") -> Iterator[dict[str, Any]]:
    kind = kind_of(path.name, None)
    assert kind is not None
    for part in WholeRecords(kind, text).read(ShardFile(str(path), path.stat().st_size), WHOLE, Cursor()):
        for record in Shown(text).dicts(part.rows, Origin(str(path), part.seek, part.skip)):
            record.pop(KEY, None)
            yield said(record)


def said(record: dict[str, Any]) -> dict[str, Any]:
    """A record as its content: JSON without nulls, empty objects among them."""
    found: Any = without_nulls(record)
    return {key: value for key, value in found.items() if value != {}}


def digest(records: Sequence[dict[str, Any]]) -> str:
    """The hash of records in order."""
    lines = (orjson.dumps(said(record), option=orjson.OPT_SORT_KEYS) for record in records)
    return hashlib.sha256(b"\n".join(lines)).hexdigest()
