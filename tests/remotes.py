"""Corpora in stores: the same shards in a local folder, in a bucket of the S3 server, and behind the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamfeed import Source
from tests.corpora import FIELDS
from tests.servers.web import WebServer
from tests.streams import corpus, stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfeed import StreamConfig
    from tests.servers.seaweed import Bucket

__all__ = ["STORES", "Shelf", "Shelved"]

STORES = ("s3", "http")


@dataclass(frozen=True)
class Shelved:
    """One corpus: its local folder, the texts in listed order, and where the stores have it."""

    kind: str
    folder: Path
    texts: list[str]
    uris: dict[str, str]
    options: dict[str, dict[str, Any]]

    def source(self, store: str) -> Source:
        """Return the source in ``store``; ``"local"`` is the folder."""
        return Source(self.uris[store], text=FIELDS[self.kind], storage_options=self.options[store])

    def stream(self, store: str, tokenizer: Any, **changes: Any) -> StreamConfig:
        """Return a small stream over it."""
        return replace(stream(self.folder, self.kind, tokenizer, **changes), sources=[self.source(store)])


class Shelf:
    """Makes corpora and keeps them for as long as the servers run."""

    def __init__(self, folder: Path, bucket: Bucket) -> None:
        self._bucket = bucket
        self.web = WebServer(folder)
        self._made: dict[tuple[str, tuple[int, ...], int], Shelved] = {}

    def corpus(self, kind: str, shards: Sequence[int], *, words: int = 12) -> Shelved:
        """Return a corpus of ``kind`` with that many records in each shard."""
        key = (kind, tuple(shards), words)
        if key not in self._made:
            self._made[key] = self._make(kind, shards, words, f"{kind} {len(self._made)}")
        return self._made[key]

    def _make(self, kind: str, shards: Sequence[int], words: int, name: str) -> Shelved:
        folder = self.web.folder / name
        texts = corpus(folder, kind, shards, words=words)
        self._bucket.put_folder(folder, f"{name}/")
        uris = {"local": str(folder), "s3": f"{self._bucket.url}/{name}", "http": self.web.address(name) + "/"}
        return Shelved(kind, folder, texts, uris, {"local": {}, "s3": self._bucket.options, "http": {}})
