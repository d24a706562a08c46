"""Settings of objectives that cannot be meant are refused where they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

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
