"""Which format a shard has: by suffix, else by its first bytes."""

from __future__ import annotations

from streamfeed.formats.protocol import Format
from streamfeed.storage.files import ShardFile

__all__ = ["KINDS", "kind_of", "make_format", "sniff"]

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet", "tar")


def kind_of(url: str, forced: str | None) -> str | None:
    """Return the kind that the suffix of ``url`` says (or ``forced``, with the suffix's compression), else ``None``."""
    raise NotImplementedError


def sniff(file: ShardFile) -> str:
    """Return the kind that the shard's first bytes say. Raises :class:`~streamfeed.errors.CorruptShardError` for none."""
    raise NotImplementedError


def make_format(kind: str, text: str | None) -> Format:
    """Return the reader of ``kind`` for the field ``text``; ``None`` is ``text``, in a tar the ``txt`` member."""
    raise NotImplementedError
