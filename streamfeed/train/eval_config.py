"""The settings of the held-out score: other data, or a part of the training's that it never reads."""

# ruff: noqa: RUF009 - setting() is dataclasses.field() with a help text
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamfeed.config import HoldOut, Source, StreamConfig
from streamfeed.errors import ConfigError
from streamfeed.redaction import redact
from streamfeed.train.setting import setting

if TYPE_CHECKING:
    from streamfeed.train.config import DataConfig

__all__ = ["EvalConfig"]


@dataclass(frozen=True)
class EvalConfig:
    """A held-out score: a pass over other data (``uri``) or a part of data's own (``hold_out``).

    It has the objective and the reading of the training's.
    """

    uri: str | list[str] | None = setting(
        None, "shards of held-out data, as data.uri; left out: no held-out score, unless eval.hold_out", shown=False
    )
    text: str | None = setting(None, "field that holds their text; left out: data.text")
    format: str | None = setting(None, "their format; left out: data.format")
    split: str | None = setting(None, "of hf://datasets/org/name: its split, such as validation")
    hold_out: float | None = setting(
        None, "instead of eval.uri: share of the data that is held out of training, such as 0.01"
    )
    hold_out_by: str = setting(
        "text", "what a record is held out by the hash of: text, key:NAME (the field NAME of it), or shard"
    )
    hold_out_seed: int = setting(0, "seed of that hash: another one holds out another part")
    every: int = setting(0, "steps between scores; 0: only at the end")

    @property
    def given(self) -> bool:
        """Whether there is held-out data."""
        return self.uri is not None or self.hold_out is not None

    @property
    def held(self) -> HoldOut | None:
        """The part of the data that is held out of training. Raises :class:`ConfigError` where there is none such."""
        if self.hold_out is None:
            return None
        return HoldOut(self.hold_out, self.hold_out_by, self.hold_out_seed)

    def check(self) -> None:
        """Raise :class:`ConfigError` for settings that contradict each other."""
        if self.uri is not None and self.hold_out is not None:
            raise ConfigError("eval.uri and eval.hold_out are both given; score other data, or a part of data's own")
        named = [name for name in ("text", "format", "split") if getattr(self, name) is not None]
        if self.hold_out is not None and named:
            raise ConfigError(f"eval.{named[0]} belongs to eval.uri; what eval.hold_out holds out is read as data is")
        if self.hold_out is None and (self.hold_out_by, self.hold_out_seed) != ("text", 0):
            raise ConfigError("eval.hold_out_by and eval.hold_out_seed need eval.hold_out, the share that is held out")
        if not self.given and self != EvalConfig():
            raise ConfigError(
                "settings of eval are given, but neither eval.uri, which names the held-out data, nor eval.hold_out is"
            )

    def stream(self, data: DataConfig) -> StreamConfig:
        """Build the config of one pass over the held-out data in listed order."""
        self.check()
        if self.hold_out is not None:
            return replace(data.stream(), hold_out=self.held).held_out()
        if self.uri is None:
            raise ConfigError("eval.uri is missing: the shards of the held-out data; or give eval.hold_out, a share")
        uris = [self.uri] if isinstance(self.uri, str) else self.uri
        hub = any(uri.startswith("hf://datasets/") for uri in uris)
        source = Source(
            uris,
            self.text if self.text is not None else data.text,
            self.format if self.format is not None else data.format,
            storage_options=data.storage_options,
            config=data.config if hub else None,
            split=self.split,
            retry=data.retry,
        )
        if any("***" in uri for uri in source.uris):
            raise ConfigError("a saved config holds nothing that signs URLs; give eval.uri again")
        return replace(data.stream(), sources=[source]).listed()

    def also_trained_on(self, data: DataConfig) -> list[str]:
        """Return the URIs, redacted, that are named as training data too: they are not held out."""
        if self.hold_out is not None:
            return []
        own = {(uri, source.split) for source in self.stream(data).sources for uri in source.uris}
        return sorted(
            redact(uri) for source in data.stream().sources for uri in source.uris if (uri, source.split) in own
        )
