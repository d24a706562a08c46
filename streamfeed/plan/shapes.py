"""What is read of a record, by the objective and the user's function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.errors import ConfigError
from streamfeed.formats.code_points import FIELD
from streamfeed.formats.shape import Field, Shape
from streamfeed.objectives import Chat, Classification, Lm, Objective, PromptCompletion
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from streamfeed.config import HoldOut, Source

__all__ = ["objective_shape", "read_shape", "token_shape"]


def read_shape(source: Source, objective: Objective, hold_out: HoldOut | None = None) -> Shape:
    """Return what is read of the records of ``source``: what its function gets, else what the objective takes.

    Beside it, the field that ``hold_out`` needs.
    """
    shape = _read(source, objective)
    return shape if hold_out is None or hold_out.key is None else shape.with_key(hold_out.key)


def _read(source: Source, objective: Objective) -> Shape:
    wanted = objective_shape(source, objective)
    if source.mapping is None:
        return wanted
    if source.fields is not None:
        return Shape(fields=tuple(Field(name, name, "any") for name in source.fields))
    return Shape(fields=tuple(Field(field.name or "text", field.name, "any") for field in wanted.fields))


def token_shape(source: Source, objective: Objective, hold_out: HoldOut | None, tokenizer: str) -> Shape:
    """Return what is read of ``source`` where its shards are tokens; they must be of the ``tokenizer`` with this print.

    Raises :class:`ConfigError` for what needs texts or fields.
    """
    shown = redact(source.uris[0])
    if not isinstance(objective, Lm):
        raise ConfigError(f"{shown} holds tokens, and {type(objective).__name__} needs texts: only Lm() takes tokens")
    if source.mapping is not None:
        raise ConfigError(f"{shown} holds tokens, of which a map function would get no text")
    if source.text not in {None, "text"} or (hold_out is not None and hold_out.key is not None):
        raise ConfigError(f"{shown} holds tokens, which have no fields: leave the text's name out, hold out by 'text'")
    return Shape(fields=(Field(FIELD, None, "any"),), tokenizer=tokenizer)


def objective_shape(source: Source, objective: Objective) -> Shape:
    """Return what the objective takes of a record of ``source``, or of what its function returns."""
    text = Field("text", source.text, "text")
    if isinstance(objective, Chat):
        return Shape(fields=(Field("messages", objective.messages, "messages"),))
    if isinstance(objective, PromptCompletion):
        return Shape(
            fields=(Field("prompt", objective.prompt, "text"), Field("completion", objective.completion, "text"))
        )
    if isinstance(objective, Classification):
        pair = (Field("text_pair", objective.text_pair, "text"),) if objective.text_pair else ()
        fields = (text, *pair, Field("label", objective.label, "label"))
        return Shape(fields=fields, labels=tuple(objective.names or ()), classes=objective.count)
    return Shape(source.text) if source.mapping is None else Shape(fields=(text,))
