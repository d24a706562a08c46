"""The objective as settings: its name, the settings of each, and their help texts.

The classes are those of :mod:`streamfeed.objectives`, whose fields carry no help; it stands here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from streamfeed.errors import ConfigError
from streamfeed.objectives import Classification, Lm, Objective

if TYPE_CHECKING:
    from streamfeed.train.config import DataConfig

__all__ = ["HELP", "ClassificationConfig", "ObjectiveName", "objective_of"]

ObjectiveName = Literal["lm", "chat", "prompt_completion", "classification", "mlm"]

_SETTINGS: tuple[ObjectiveName, ...] = ("chat", "prompt_completion", "classification", "mlm")


@dataclass(frozen=True)
class ClassificationConfig:
    """As :class:`~streamfeed.objectives.Classification`, but all of it may be left out while that is not chosen."""

    text_pair: str | None = None
    label: str = "label"
    names: list[str] | None = None
    classes: int | None = None


HELP = {
    "data.retry.attempts": "requests made for one thing, the first included",
    "data.retry.first_s": "bound of the first random wait, in seconds; it doubles with each",
    "data.retry.most_s": "largest bound of a wait, in seconds",
    "data.retry.total_s": "seconds after the first request in which a repetition may begin",
    "data.retry.stall_s": "seconds without a byte after which a request has failed",
    "data.chat.messages": "field of the messages: a list of objects with role and content",
    "data.chat.train_on": "tokens with a loss: those of assistant turns, or all",
    "data.chat.template": "Jinja text of a chat template; left out: the tokenizer's own",
    "data.prompt_completion.prompt": "field of the prompt",
    "data.prompt_completion.completion": "field of the completion",
    "data.prompt_completion.train_on": "tokens with a loss: those of the completion, or all",
    "data.classification.text_pair": "field of the second text of a pair; left out: there is none",
    "data.classification.label": "field of the label: a number, or one of data.classification.names",
    "data.classification.names": "names of the labels, as a list; they are numbered in this order",
    "data.classification.classes": "number of the labels, where they are numbers from 0 on",
    "data.mlm.probability": "share of the tokens that are predicted",
    "data.mlm.whole_word": "choose words to mask, not tokens",
}
"""Help texts by dotted name."""


def objective_of(data: DataConfig) -> Objective:
    """Return the objective that is chosen.

    Raises :class:`ConfigError` where its settings are incomplete, and where those of another are given.
    """
    for name in _SETTINGS:
        given = getattr(data, name)
        strange = [one.name for one in fields(given) if getattr(given, one.name) != one.default]
        if strange and name != data.objective:
            said = f"data.{name}.{strange[0]} is given, but data.objective is {data.objective}"
            raise ConfigError(f"{said}; set --data.objective {name}")
    if data.objective == "classification":
        asked = data.classification
        if asked.names is None and asked.classes is None:
            raise ConfigError(
                "data.objective classification needs data.classification.names, a list, or data.classification.classes"
            )
        return Classification(asked.text_pair, asked.label, asked.names, asked.classes)
    chosen: dict[str, Objective] = {
        "lm": Lm(),
        "chat": data.chat,
        "prompt_completion": data.prompt_completion,
        "mlm": data.mlm,
    }
    return chosen[data.objective]
