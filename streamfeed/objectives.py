"""What a record becomes: the objectives of a stream, as settings.

What each of them does with a record is in :mod:`streamfeed.encode.objectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence  # noqa: TC003 - so that typing.get_type_hints works on these classes
from dataclasses import dataclass
from typing import Any, Literal

from streamfeed.errors import ConfigError

__all__ = ["Chat", "Classification", "Lm", "Map", "Mlm", "Objective", "PromptCompletion"]


@dataclass(frozen=True)
class Lm:
    """Next-token prediction: the source's text field, with one EOS behind every document."""


@dataclass(frozen=True)
class Chat:
    """Conversations: a list of ``{"role": ..., "content": ...}`` in the field ``messages``, by the chat template.

    ``train_on``: the loss is on the ``assistant`` turns (with the control token that ends each), or on ``all`` tokens.
    ``template`` is Jinja text in place of the tokenizer's own template.
    """

    messages: str = "messages"
    train_on: Literal["assistant", "all"] = "assistant"
    template: str | None = None

    def __post_init__(self) -> None:
        _check_train_on(self.train_on, ("assistant", "all"))
        _check_names(messages=self.messages)


@dataclass(frozen=True)
class PromptCompletion:
    """Two text fields, one behind the other and one EOS; the loss is on the ``completion``, or on ``all`` tokens."""

    prompt: str = "prompt"
    completion: str = "completion"
    train_on: Literal["completion", "all"] = "completion"

    def __post_init__(self) -> None:
        _check_train_on(self.train_on, ("completion", "all"))
        _check_names(prompt=self.prompt, completion=self.completion)


@dataclass(frozen=True)
class Classification:
    """The source's text field, ``text_pair`` behind it where there is one, and one label a sample.

    ``label`` is a field of numbers from 0 to ``classes - 1``, or of ``names``, which are numbered in their order. One
    of the two must be given. Samples longer than a row are truncated, the longer text first, and counted.
    """

    text_pair: str | None = None
    label: str = "label"
    names: Sequence[str] | None = None
    classes: int | None = None

    def __post_init__(self) -> None:
        if (self.names is None) == (self.classes is None):
            raise ConfigError("classification needs either the names of its labels or the number of its classes")
        if self.names is not None and (isinstance(self.names, str) or len(set(self.names)) != len(self.names)):
            raise ConfigError(f"the names of labels must be a list without repetitions, got {self.names!r}")
        if self.names is not None and not all(isinstance(name, str) for name in self.names):
            raise ConfigError(
                f"the names of labels must be strings, got {list(self.names)!r}; for labels that are numbers from 0 "
                "on, or false and true, give the number of classes alone"
            )
        if self.count < 2:
            raise ConfigError(f"classification needs at least 2 classes, got {self.count}")
        _check_names(text_pair="text_pair" if self.text_pair is None else self.text_pair, label=self.label)

    @property
    def count(self) -> int:
        """The number of classes."""
        return self.classes or 0 if self.names is None else len(self.names)


@dataclass(frozen=True)
class Mlm:
    """Masked language modelling on the source's text field, with the special tokens that the tokenizer itself adds.

    A share ``probability`` of the tokens is predicted; of these 80 % are replaced by the mask token and 10 % by a
    random one (Devlin et al. 2019, https://arxiv.org/abs/1810.04805). ``whole_word`` chooses words instead of tokens.
    """

    probability: float = 0.15
    whole_word: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise ConfigError(f"the probability of a mask must be between 0 and 1, got {self.probability}")


Objective = Lm | Chat | PromptCompletion | Classification | Mlm


@dataclass(frozen=True)
class Map:
    """A user's own function, run on every record before the objective.

    ``function(record)`` gets a dictionary of the source's ``fields`` and returns one record, a list of them, or None.
    With ``batched`` it gets a list of records and returns a list: always the same ones, a fixed number of documents of
    a window (:data:`MAP_SLICE`, fewer at its end). A function of two arguments also gets a ``numpy.random.Generator``
    that is keyed by seed, source, epoch, lane, window and document, and must draw from that alone: a resume runs the
    function again. ``version`` is part of what the stream is: raise it when the function changes what it returns.
    """

    function: Callable[..., Any]
    batched: bool = False
    version: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"map takes a function, or Map(function, ...), got {self.function!r}")

    @property
    def name(self) -> str:
        """What the function is called, with its module."""
        wrapped = self.function
        return f"{getattr(wrapped, '__module__', '')}.{getattr(wrapped, '__qualname__', type(wrapped).__qualname__)}"


MAP_SLICE = 256
"""Documents that a batched function gets at once."""


def _check_train_on(given: str, allowed: tuple[str, str]) -> None:
    if given not in allowed:
        raise ConfigError(f"train_on must be {allowed[0]} or {allowed[1]}, got {given!r}")


def _check_names(**fields: object) -> None:
    for setting, name in fields.items():
        if not isinstance(name, str) or not all(name.split(".")):
            raise ConfigError(f"{setting} must be the name of a field, without an empty part, got {name!r}")
