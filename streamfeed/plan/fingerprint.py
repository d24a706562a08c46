"""What makes two streams the same stream."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import xxhash

from streamfeed.objectives import Chat, Classification, Lm, Mlm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfeed.config import Source, StreamConfig
    from streamfeed.objectives import Objective

__all__ = ["ORDER_VERSION", "TokenizerPrint", "asked_of", "differences", "fingerprint", "source_print"]


class TokenizerPrint(Protocol):
    """What is noted of a tokenizer."""

    @property
    def fingerprint(self) -> str:
        """A hash of what it means."""

    @property
    def chat_template(self) -> str | None:
        """Its chat template."""

    @property
    def specials(self) -> Mapping[str, str]:
        """The special strings that a template may name."""

    @property
    def mask_id(self) -> int | None:
        """The id of its mask token."""


ORDER_VERSION = 3
"""Raised whenever the same config and bytes would give other rows; a state of another version is refused."""

LONG_KIND = 64
"""A kind with more characters (one that holds a recipe) is hashed first: every shard has it."""


def source_print(source: Source, names: Sequence[str], sizes: Sequence[int], kinds: Sequence[str]) -> dict[str, Any]:
    """Describe one source: its shards as count, bytes and hash of relative names, sizes and kinds; field and weight."""
    digest = xxhash.xxh3_128()
    long = {kind: xxhash.xxh3_128_hexdigest(kind.encode()) for kind in set(kinds) if len(kind) > LONG_KIND}
    for name, size, kind in zip(names, sizes, (long.get(kind, kind) for kind in kinds), strict=True):
        digest.update(f"{len(name)}:{name}:{size}:{kind}\n".encode(errors="surrogateescape"))
    return {
        "shards": len(sizes),
        "bytes": sum(sizes),
        "hash": digest.hexdigest(),
        **asked_of(source),
    }


def asked_of(source: Source) -> dict[str, Any]:
    """Describe what a source's settings say of its rows, whatever its shards are."""
    asked: dict[str, Any] = {"text": source.text, "weight": float(source.weight)}
    if source.mapping is not None:
        named, fields = source.mapping, None if source.fields is None else list(source.fields)
        asked["map"] = {"name": named.name, "batched": named.batched, "version": named.version, "fields": fields}
    return asked


def fingerprint(
    config: StreamConfig, sources: Sequence[dict[str, Any]], tokenizer: TokenizerPrint, lanes: int
) -> dict[str, Any]:
    """Return everything that defines rows, as small JSON; not ``epochs``, which only says when to stop."""
    chosen: dict[str, Any] = {"group_by_length": True} if config.group_by_length else {}
    if config.hold_out is not None:
        chosen["hold_out"] = asdict(config.hold_out)
    return chosen | {
        "order_version": ORDER_VERSION,
        "sources": list(sources),
        "tokenizer": tokenizer.fingerprint,
        "seq_len": config.seq_len,
        "packing": config.packing,
        "objective": _objective(config.objective, tokenizer),
        "shuffle_buffer": config.shuffle_buffer,
        "window_bytes": config.window_bytes,
        "seed": config.seed,
        "lanes": lanes,
        "on_error": config.on_error,
    }


def _objective(objective: Objective, tokenizer: TokenizerPrint) -> object:
    if isinstance(objective, Lm):
        return "lm"
    named = {"name": type(objective).__name__, **asdict(objective)}
    if isinstance(objective, Chat):
        text = objective.template or tokenizer.chat_template or ""
        said = sorted((name, token) for name, token in tokenizer.specials.items() if name in text)
        named["template"] = xxhash.xxh3_128_hexdigest(json.dumps([text, said]).encode())
    if isinstance(objective, Mlm):
        named["mask_id"] = tokenizer.mask_id
    if isinstance(objective, Classification):
        named["names"] = None if objective.names is None else list(objective.names)
    return named


def differences(saved: Mapping[str, Any], current: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Say in words where two fingerprints differ, one line a leaf; empty when they do not."""
    lines: list[str] = []
    for key in sorted({*saved, *current}):
        old, new = saved.get(key), current.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += differences(old, new, f"{prefix}{key}.")
        elif _of_dicts(old) and _of_dicts(new) and len(old) == len(new):
            for index, (before, after) in enumerate(zip(old, new, strict=True)):
                lines += differences(before, after, f"{prefix}{key}[{index}].")
        elif _of_dicts(old) and _of_dicts(new):
            lines.append(f"{prefix}{key}: {len(old)} in the state, {len(new)} now")
        else:
            lines.append(f"{prefix}{key}: {old!r} in the state, {new!r} now")
    return lines


def _of_dicts(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
