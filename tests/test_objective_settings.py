"""Settings of objectives that cannot be meant are refused where they are written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.errors import ConfigError
from streamfeed.objectives import Chat, Classification, PromptCompletion

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Chat, "train_on must be assistant or all, got 'assistants'"),
        (PromptCompletion, "train_on must be completion or all, got 'assistants'"),
    ],
)
def test_what_a_loss_is_on_is_one_of_the_two(make: Callable[..., Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(train_on="assistants")


@pytest.mark.parametrize("names", [[False, True], [0, 1], ["no", False]])
def test_names_of_labels_are_strings(names: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be strings.*give the number of classes alone"):
        Classification(names=names)


@pytest.mark.parametrize("name", ["", "a..b", ".a", 5])
@pytest.mark.parametrize(
    ("objective", "setting"),
    [
        (Chat, "messages"),
        (PromptCompletion, "prompt"),
        (PromptCompletion, "completion"),
        (partial(Classification, classes=2), "text_pair"),
        (partial(Classification, classes=2), "label"),
    ],
)
def test_fields_of_objectives_have_names(objective: Callable[..., Any], setting: str, name: Any) -> None:
    with pytest.raises(ConfigError, match=f"{setting} must be the name of a field, without an empty part, got "):
        objective(**{setting: name})


def test_a_map_is_a_function() -> None:
    function: Any = "lower"
    with pytest.raises(ConfigError, match=r"map takes a function, or Map\(function, ...\), got 'lower'"):
        Source("shards", map=function)


@pytest.mark.parametrize("objective", [Chat(), PromptCompletion()])
def test_a_text_field_that_the_objective_does_not_read_is_refused(objective: Chat | PromptCompletion) -> None:
    with pytest.raises(ConfigError, match=r"source a: \w+ does not read the text field 'body'"):
        StreamConfig([Source("a", text="body")], "tokenizer", objective=objective)


def test_objectives_are_refused_in_packings_that_they_do_not_have() -> None:
    with pytest.raises(ConfigError, match="set packing='none', not 'concat'"):
        StreamConfig([Source("a")], "tokenizer", objective=Classification(classes=2))
    with pytest.raises(ConfigError, match="group_by_length is for packing='none'"):
        StreamConfig([Source("a")], "tokenizer", packing="best_fit", group_by_length=True)
    with pytest.raises(ConfigError, match="objective takes an object"):
        StreamConfig([Source("a")], "tokenizer", objective="chat")  # type: ignore[arg-type]
