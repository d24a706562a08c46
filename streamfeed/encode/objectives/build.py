"""The objective that a stream's settings ask for, ready to encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.encode.controls import ControlCounter
from streamfeed.encode.engines import CHECK_EVERY, build_engine
from streamfeed.encode.long import InParts
from streamfeed.encode.proof import Verdict, prove
from streamfeed.encode.vocabulary import Vocabulary
from streamfeed.objectives import Chat, Classification, Mlm, PromptCompletion

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfeed.encode.objectives.protocol import Objective
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.objectives import Objective as Settings

__all__ = ["build_objective", "has_flags", "has_values", "uses_engine", "verdict_for"]


def uses_engine(settings: Settings) -> bool:
    """Say whether the objective encodes with the engine that the proof chooses, and so needs an EOS."""
    return not isinstance(settings, Chat | Classification | Mlm)


def verdict_for(settings: Settings, spec: TokenizerSpec, seq_len: int, cache_dir: Path | None) -> Verdict:
    """Return the verdict on the fast engine, which is proven only where the objective uses it.

    Raises :class:`~streamfeed.errors.ConfigError` where the tokenizer lacks what the objective needs: here, before any
    worker finds out.
    """
    if uses_engine(settings):
        _ = spec.frame  # which raises where there is no EOS
        return prove(spec, cache_dir)
    verdict = Verdict("huggingface", f"{type(settings).__name__} needs what only Hugging Face's own tokenizer says")
    build_objective(settings, spec, verdict, seq_len=seq_len)
    if isinstance(settings, Mlm) and settings.whole_word:
        Vocabulary(spec).words()
    return verdict


def has_flags(settings: Settings, spec: TokenizerSpec) -> bool:
    """Say whether the objective's tokens have flags."""
    if isinstance(settings, Classification):
        return spec.type_ids and settings.text_pair is not None
    return isinstance(settings, Chat | PromptCompletion) and settings.train_on != "all"


def has_values(settings: Settings) -> bool:
    """Say whether the objective's samples have a value."""
    return isinstance(settings, Classification)


def build_objective(
    settings: Settings,
    spec: TokenizerSpec,
    verdict: Verdict,
    *,
    seq_len: int,
    skip: bool = False,
    check_every: int | None = CHECK_EVERY,
    on_mismatch: Callable[[str], None] | None = None,
) -> Objective:
    """Build the objective; this is where a worker loads its tokenizer.

    ``skip``: what only the objective can find bad is passed over and counted. ``check_every`` and ``on_mismatch`` are
    those of :func:`~streamfeed.encode.engines.build_engine`. Raises :class:`~streamfeed.errors.ConfigError` where the
    tokenizer lacks what the objective needs.
    """
    if isinstance(settings, Chat):
        from streamfeed.encode.objectives.chat import ChatSamples

        return ChatSamples(settings, spec, skip)
    controls = ControlCounter(spec)
    if isinstance(settings, Classification):
        from streamfeed.encode.objectives.classification import ClassificationSamples

        return ClassificationSamples(spec, seq_len, settings.text_pair is not None, controls)
    if isinstance(settings, Mlm):
        from streamfeed.encode.objectives.mlm import MlmSamples

        return MlmSamples(spec, controls)
    engine = InParts(build_engine(spec, verdict, check_every=check_every, on_mismatch=on_mismatch), spec.frame)
    if isinstance(settings, PromptCompletion):
        from streamfeed.encode.objectives.prompt_completion import PromptCompletionSamples

        return PromptCompletionSamples(settings, engine, spec.frame, controls)
    from streamfeed.encode.objectives.lm import LmSamples

    return LmSamples(engine, controls)
