"""Searching a text in rows, also where it is cut between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfeed.loader.provenance import Piece

__all__ = ["Search"]

_Place = tuple[object, int]


class Search:
    """Finds ``text`` in pieces as they come, by lane and row.

    ``decode`` makes text of ids. Of a text that is cut between two pieces of a document the later one to come has it.
    """

    def __init__(self, text: str, decode: Callable[[Sequence[int]], str]) -> None:
        self._text = text
        self._decode = decode
        self._most = max(1, len(text.encode()))  # a token has at least one byte of it
        self._tails: dict[_Place, list[int]] = {}
        self._heads: dict[_Place, list[int]] = {}

    def has(self, piece: Piece, ids: Sequence[int]) -> bool:
        """Say whether the text is in ``piece``, whose ids are ``ids``, or goes on in one that has come before."""
        found = self._text in self._decode(ids)
        sample = piece.records, piece.sample
        before, behind = (sample, piece.token), (sample, piece.token + len(ids))
        tail, head = self._tails.pop(before, None), self._heads.pop(behind, None)
        if tail is not None:
            found |= self._between(tail, ids[: self._most])
        elif piece.token:
            self._heads[before] = list(ids[: self._most])
        if head is not None:
            found |= self._between(ids[-self._most :], head)
        else:
            self._tails[behind] = list(ids[-self._most :])
        return found

    def _between(self, tail: Sequence[int], head: Sequence[int]) -> bool:
        """Say whether the text begins in one piece and ends in the other."""
        joined, *parts = (self._decode(ids).count(self._text) for ids in ([*tail, *head], tail, head))
        return joined > sum(parts)
