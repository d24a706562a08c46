"""What a conversion is: settings that decide bytes, apart from how it runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["SUFFIXES", "Settings", "Target"]

Target = Literal["parquet", "tar", "jsonl.zst", "tokens"]
SUFFIXES: dict[Target, str] = {
    "parquet": "parquet",
    "tar": "tar",
    "jsonl.zst": "jsonl.zst",
    "tokens": "tokens",
}

LAYOUT = 1
"""Raised whenever the same settings and records would give other bytes."""

MAX_BYTES = 256 << 20
"""Bytes of records in a shard where nothing else is said."""

_LIBRARIES = {"parquet": ("pyarrow",), "tar": ("webdataset",), "jsonl.zst": ("zstandard",), "tokens": ("pyarrow",)}


@dataclass(frozen=True)
class Settings:
    """The format ``to``, and how records are cut into shards.

    ``max_records``: a shard's records, exactly, but for the last. ``max_bytes``: the bytes of a shard's records as the
    source holds them, without compression, about; 256 MiB where neither is given. ``shuffle``: the seed of a global
    order, None keeps the listed one. ``text``: the field that holds the text. ``tokenizer`` and ``verdict``: what makes
    tokens of it.
    """

    to: Target
    max_records: int | None = None
    max_bytes: int | None = None
    shuffle: int | None = None
    text: str = "text"
    tokenizer: TokenizerSpec | None = field(default=None, repr=False)
    verdict: Verdict | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.to not in SUFFIXES:
            raise ConfigError(f"shards are written as {', '.join(SUFFIXES)}, not {self.to!r}")
        for name in ("max_records", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.shuffle is not None and not 0 <= self.shuffle < 1 << 64:
            raise ConfigError(f"the seed of a shuffle is a whole number in [0, 2**64), got {self.shuffle!r}")
        if (self.to == "tokens") != (self.tokenizer is not None):
            what = "needs a tokenizer" if self.to == "tokens" else "takes no tokenizer: only tokens do"
            raise ConfigError(f"a conversion to {self.to} {what}")

    @property
    def limit_bytes(self) -> int | None:
        """The bytes of records that a shard may have."""
        return MAX_BYTES if self.max_bytes is None and self.max_records is None else self.max_bytes

    def said(self) -> dict[str, Any]:
        """Return what of this decides bytes, as JSON: with the versions of the libraries that write."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in {"tokenizer", "verdict"}}
        named = {} if self.tokenizer is None else {"tokenizer": self.tokenizer.fingerprint}
        return {
            "layout": LAYOUT,
            **plain,
            "max_bytes": self.limit_bytes,
            **named,
            "libraries": {name: version(name) for name in _LIBRARIES[self.to]},
        }

    def name(self, number: int) -> str:
        """Return the name of a shard."""
        return f"shard-{number:05}.{SUFFIXES[self.to]}"
