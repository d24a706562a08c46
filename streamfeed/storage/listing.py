"""Which files a source's URIs mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Listing", "resolve"]


@dataclass(frozen=True, slots=True)
class Listing:
    """The shards of a source, in order.

    ``urls`` opens them (absolute paths). ``names`` are their stable relative names for the fingerprint: moving the whole
    corpus to another folder does not change them. ``sizes`` are in bytes. ``ignored`` counts the hidden and marker files passed over.
    """

    urls: list[str]
    names: list[str]
    sizes: list[int]
    ignored: int


def resolve(uris: Sequence[str]) -> Listing:
    """List the shards that ``uris`` mean. Raises :class:`~streamfeed.errors.SourceError` where one means none."""
    raise NotImplementedError
