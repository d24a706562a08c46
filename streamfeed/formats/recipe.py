"""How ``datasets`` is to read a shard that only it can read: a kind with the builder's settings in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamfeed.storage.hub.address import HubAddress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BY_DATASETS", "Recipe"]

BY_DATASETS = "datasets/"
"""What the kind of a shard begins with that ``datasets`` reads."""

_PART = re.compile(r"(?:.*/)?(\d{5,})-of-(\d{5,})")


@dataclass(frozen=True)
class Recipe:
    """A builder of ``datasets`` with its settings.

    Without ``files`` a shard is one file, and its URL is that of the file. With them, the builder gives a number of
    shards that are no files: a shard's URL is the commit's address with the path ``config/split/00003-of-00007``.
    """

    module: str
    config: str
    split: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """The recipe as a kind of shard; the same for every commit with the same files."""
        rest = {"config": self.config, "split": self.split, "settings": dict(self.settings), "files": list(self.files)}
        return (
            f"{BY_DATASETS}{self.module} {json.dumps(rest, sort_keys=True, ensure_ascii=False, separators=(',', ':'))}"
        )

    @classmethod
    def parse(cls, kind: str) -> Recipe:
        """Return the recipe of a :attr:`kind`."""
        module, _, rest = kind.removeprefix(BY_DATASETS).partition(" ")
        found = json.loads(rest)
        return cls(module, found["config"], found["split"], found["settings"], found["files"])

    def names(self, count: int) -> list[str]:
        """Return the paths of ``count`` shards that are no files."""
        return [f"{self.config}/{self.split}/{index:05}-of-{count:05}" for index in range(count)]

    def part(self, url: str) -> tuple[HubAddress, Sequence[str], int, int]:
        """Return what a shard's URL means: the commit, the files to give to the builder, which shard of how many."""
        address = HubAddress.parse(url)
        if not self.files:
            return address.at(""), [address.path], 0, 1
        found = _PART.fullmatch(address.path)
        if found is None:
            raise ValueError(url)
        return address.at(""), self.files, int(found[1]), int(found[2])
