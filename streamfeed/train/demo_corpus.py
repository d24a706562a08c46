"""The demo's corpus: the standard library's sources as shards of three formats."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Document", "find_documents", "write_shards"]

_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_SHARDS_OF_A_FORMAT = 3
_GROUP = 64
"""documents in a Parquet row group and in a zstd frame: a resume seeks to their starts"""


@dataclass(frozen=True)
class Document:
    """One source file: ``path`` relative to the library, with ``/``."""

    path: str
    text: str


def find_documents(stdlib: Path) -> tuple[list[Document], int]:
    """Return the ``.py`` files under ``stdlib`` in the order of their paths, and the number passed over.

    Tests, installed packages and links are left out; files that are not UTF-8, or empty, are passed over.
    """
    documents, passed_over = [], 0
    for path in sorted(_sources(stdlib), key=lambda path: path.relative_to(stdlib).as_posix()):
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        if text:
            documents.append(Document(path.relative_to(stdlib).as_posix(), text))
        else:
            passed_over += 1
    return documents, passed_over


def write_shards(documents: list[Document], folder: Path) -> list[str]:
    """Deal the documents to nine shards, write each under a temporary name and rename it; return their names."""
    formats: list[tuple[str, Callable[[list[Document], Path], None]]] = [
        ("tar", _write_tar),
        ("parquet", _write_parquet),
        ("jsonl.zst", _write_jsonl_zst),
    ]
    names = []
    count = _SHARDS_OF_A_FORMAT * len(formats)
    for index in range(count):
        suffix, write = formats[index // _SHARDS_OF_A_FORMAT]
        name = f"stdlib-{index % _SHARDS_OF_A_FORMAT:03d}.{suffix}"
        temporary = folder / f".{name}.{os.getpid()}.tmp"
        write(documents[index::count], temporary)
        temporary.replace(folder / name)
        names.append(name)
    return names


def _sources(stdlib: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(stdlib):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in files:
            path = Path(root, name)
            if name.endswith(".py") and not path.is_symlink():
                yield path


def _write_tar(documents: list[Document], path: Path) -> None:
    from webdataset import TarWriter

    with path.open("wb") as file, TarWriter(file, user="", group="", mtime=0.0) as tar:
        for document in documents:
            # A key ends at the first dot of its last part, and may hold folders.
            key = document.path.removesuffix(".py").replace(".", "_")
            tar.write({"__key__": key, "txt": document.text})


def _write_parquet(documents: list[Document], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"path": [document.path for document in documents], "text": [document.text for document in documents]}
    parquet.write_table(pa.table(columns), path, row_group_size=_GROUP, compression="zstd")


def _write_jsonl_zst(documents: list[Document], path: Path) -> None:
    import zstandard

    with path.open("wb") as file:
        for start in range(0, len(documents), _GROUP):
            group = documents[start : start + _GROUP]
            lines = "".join(json.dumps({"path": d.path, "text": d.text}, ensure_ascii=False) + "\n" for d in group)
            file.write(zstandard.compress(lines.encode("utf-8"), 3))
