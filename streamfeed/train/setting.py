"""A setting of the main job: a field of a dataclass with the help text of its flag."""

from __future__ import annotations

from dataclasses import field
from typing import Any

__all__ = ["setting"]


def setting(default: Any, help_text: str, *, shown: bool = True) -> Any:  # noqa: ANN401 - a field of any type
    """Return the field of a setting; ``shown=False``: no ``repr`` shows it."""
    return field(default=default, repr=shown, metadata={"help": help_text})
