"""Counts the control strings that stand in texts, such as ``<|endoftext|>``; they are encoded as text.

The fast engine reads 130 MB/s, so a look at every text must be far faster than that. Control strings hold characters
that texts seldom do, and one character is found at the speed of memory: only where one is, the strings are looked for.
"""

from __future__ import annotations

import os.path
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["ControlCounter"]

_SELDOM = "|~^`\\<>[]{}@#$%&*+=_/"
_COMMON = " etaoinsrhldcumfpgwybvkxjqz.,0123456789-'\"\n:;()!?ETAOINSRHLDCUMFPGWYBVKXJQZ"  # the most common first


class ControlCounter:
    """Counts the special ones of the added tokens of ``spec`` in texts, the longest where several begin at a place."""

    def __init__(self, spec: TokenizerSpec) -> None:
        added = orjson.loads(spec.json).get("added_tokens") or []
        strings = sorted({str(token["content"]) for token in added if token["special"] and token["content"]})
        self._signs = _signs(strings)
        self._reach = max(map(len, strings), default=0)
        self._pattern = re.compile(_pattern(strings)) if strings else None

    def count(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """Return the number in each text, int64 ``[texts]``; None where there is none."""
        if self._pattern is None:
            return None
        # To search first costs half of what an iterator does.
        holding = [index for index, text in enumerate(texts) if self._holds(text, self._pattern)]
        if not holding:
            return None
        counts = np.zeros(len(texts), dtype=np.int64)
        counts[holding] = [sum(1 for _ in self._pattern.finditer(texts[index])) for index in holding]
        return counts

    def _holds(self, text: str, pattern: re.Pattern[str]) -> bool:
        """Look for a control string where one of its signs is: between the first and the last of them."""
        for sign in self._signs:
            first = text.find(sign)
            if first >= 0 and pattern.search(text, max(0, first - self._reach), text.rfind(sign) + self._reach):
                return True
        return False


def _signs(strings: Sequence[str]) -> list[str]:
    """Return few characters, as rare in texts as can be, of which every string holds one."""
    signs: list[str] = []
    left = list(strings)
    while left:
        holding = Counter(character for string in left for character in set(string))
        signs.append(min(holding, key=lambda character: _cost(character, holding[character])))
        left = [string for string in left if signs[-1] not in string]
    return signs


def _cost(character: str, holding: int) -> tuple[int, int, int, str]:
    """Order characters by how often texts hold them, those that texts seldom do by how many strings hold them first."""
    common = _COMMON.find(character)
    if common >= 0:
        return (1, -common, -holding, character)
    return (0, -holding, _SELDOM.find(character), character)


def _pattern(strings: Sequence[str]) -> str:
    """Return a pattern of any of the strings, the longest first.

    It branches where they do: with hundreds side by side, each place in a text where one could begin would cost as
    many attempts.
    """
    common = os.path.commonprefix(strings)  # noqa: RUF071 - by character is what is wanted
    tails = defaultdict(list)
    for string in strings:
        tails[string[len(common) : len(common) + 1]].append(string[len(common) :])
    ends = tails.pop("", None) is not None
    if not tails:
        return re.escape(common)
    branches = "|".join(_pattern(tails[first]) for first in sorted(tails))
    return f"{re.escape(common)}(?:{branches}){'?' if ends else ''}"
