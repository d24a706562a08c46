"""A command's own flags, told from those of training that it takes as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["take_own", "whole_number"]


def take_own(
    argv: Sequence[str], defaults: Mapping[str, str], switches: Collection[str] = ()
) -> tuple[dict[str, str], set[str], list[str]]:
    """Take the flags in ``defaults``, which have a value, and the ``switches``, which have none, out of the words.

    Returns the values by flag, the switches that are on, and the other words. Raises :class:`ConfigError` for a flag
    without its value.
    """
    values, on, rest = dict(defaults), set[str](), list[str]()
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if word in switches:
            on.add(word)
        elif name in defaults and equals:
            values[name] = value
        elif word in defaults:
            found = next(words, None)
            if found is None:
                raise ConfigError(f"{word} needs a value")
            values[word] = found
        else:
            rest.append(word)
    return values, on, rest


def whole_number(flag: str, value: str, least: int) -> int:
    """Return the value of ``flag``; raises :class:`ConfigError` where it is no whole number of at least ``least``."""
    if not (value.isascii() and value.isdecimal()) or int(value) < least:
        raise ConfigError(f"{flag} takes a whole number of at least {least}, got {value!r}")
    return int(value)
