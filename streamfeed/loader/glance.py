"""A look at one shard of each source before anything starts: how large its documents are, and what unpacking it takes.

Only at shards on this machine, and only at their first records; of what lies in a store, and of formats that take Arrow
to read, the usual is assumed: no request is made, and a trainer stays without Arrow.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple, cast

import zstandard

from streamfeed.errors import StreamfeedError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.storage.store import Store
from streamfeed.storage.urls import is_remote

if TYPE_CHECKING:
    from collections.abc import Generator

    from streamfeed.formats.protocol import Chunk
    from streamfeed.plan.plan import SourcePlan
    from streamfeed.storage.files import ShardFile

__all__ = ["USUAL_DOCUMENT", "USUAL_FRAME_WINDOW", "Glance", "glance", "in_store"]

USUAL_DOCUMENT = 8 << 10
"""Bytes of a document where none was seen: web pages have 2 to 5 kB on average, source files 8 kB."""

USUAL_FRAME_WINDOW = 8 << 20
"""Bytes of a zstd frame's window: 2 MB at the usual level 3, 8 MB at level 19, more only where it was asked for."""

_HEADER = 18
"""Bytes of the longest header of a zstd frame."""

ENOUGH_DOCUMENTS, ENOUGH_BYTES = 64, 4 << 20

_LOOKED_INTO = frozenset({"jsonl", "lines", "csv", "tsv", "tar"})


class Glance(NamedTuple):
    """What is known of a source.

    ``document``: bytes of text of a document on average, ``seen`` or assumed; ``frame_window``: bytes that unpacking an
    open shard keeps, 0 where it is not zstd; ``remote``: whether any shard lies in a store.
    """

    document: int = USUAL_DOCUMENT
    seen: bool = False
    frame_window: int = 0
    remote: bool = False


def glance(source: SourcePlan) -> Glance:
    """Look at the largest shard of ``source``, if it is on this machine; what is wrong with it is for workers to say.

    Reads its first documents, most often 256 kB of text and at most 4 MB or one document, and the header of a zstd
    frame.
    """
    shards = source.shards
    zst = any(kind.endswith(".zst") for kind in shards.kind_names)
    found = Glance(frame_window=USUAL_FRAME_WINDOW if zst else 0, remote=in_store(source))
    largest = int(shards.sizes.argmax())
    url, kind = shards.url(largest), shards.kind(largest)
    if is_remote(url):
        return found
    name, _, packing = kind.partition(".")
    if kind == "text":  # a document a file, so the listing has said it
        return found._replace(document=max(1, int(shards.sizes.mean())), seen=True)
    file = Store().file(url, int(shards.sizes[largest]), shards.version(largest))
    with suppress(StreamfeedError, OSError):
        if packing == "zst":
            found = found._replace(frame_window=_frame_window(file))
        sizes = _sizes(file, kind, source) if name in _LOOKED_INTO else []
        if sizes:
            found = found._replace(document=max(1, sum(sizes) // len(sizes)), seen=True)
    return found


def in_store(source: SourcePlan) -> bool:
    """Say whether any shard of ``source`` lies behind a network."""
    return b"://" in source.shards.text.tobytes()


def _frame_window(file: ShardFile) -> int:
    """Return the window of the shard's first frame."""
    with closing(file.open()) as raw:
        head = raw.read_at(0, _HEADER)
    with suppress(zstandard.ZstdError):
        return int(zstandard.get_frame_parameters(head).window_size) or USUAL_FRAME_WINDOW
    return USUAL_FRAME_WINDOW


def _sizes(file: ShardFile, kind: str, source: SourcePlan) -> list[int]:
    """Return the bytes of the shard's first documents."""
    chunks = cast("Generator[Chunk]", make_format(kind, source.shape).read(file, WHOLE, Cursor()))
    sizes: list[int] = []
    with closing(chunks):
        for chunk in chunks:
            texts = [value for value in chunk.values if isinstance(value, str) and value]
            sizes += [len(text.encode(errors="surrogatepass")) for text in texts]
            if len(sizes) >= ENOUGH_DOCUMENTS or sum(sizes) >= ENOUGH_BYTES:
                break
    return sizes
