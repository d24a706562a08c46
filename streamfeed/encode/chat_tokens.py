"""Tokens of rendered conversations: special strings of the template are special tokens, those of contents are text."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from tokenizers import AddedToken, Tokenizer

from streamfeed.encode.long import LONG, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from tokenizers import Encoding

__all__ = ["ChatTokenizer", "Range", "Tokens"]

Range = tuple[int, int]

_LAST = 0x10FFFD  # of the private-use characters
_NEVER = re.compile(r"(?!)")


class Tokens:
    """``ids``, int32 ``[tokens]``, and what characters of the text they are.

    Asked for one by one: a list of all offsets takes a quarter of the time that encoding does. Of a long text it is
    made nevertheless, int64 ``[tokens, 2]``, since encodings hold some hundred bytes a token.
    """

    def __init__(self, ids: NDArray[np.int32], encoding: Encoding | NDArray[np.int64]) -> None:
        self.ids = ids
        self._encoding = encoding

    def first_from(self, place: int) -> int:
        """Return the first token that begins at ``place`` or behind it; the number of tokens where none does."""
        return bisect_left(range(len(self.ids)), place, key=lambda token: self.characters(token)[0])

    def first_beyond(self, place: int) -> int:
        """Return the first token that ends behind ``place``; the number of tokens where none does."""
        return bisect_right(range(len(self.ids)), place, key=lambda token: self.characters(token)[1])

    def characters(self, token: int) -> Range:
        """Return where a token begins and ends."""
        if isinstance(self._encoding, np.ndarray):
            first, last = self._encoding[token].tolist()
            return first, last
        begin, end = self._encoding.token_to_chars(token) or (0, 0)
        return begin, end


class ChatTokenizer:
    """Encodes texts that a template rendered, adding nothing.

    ``trimmed``: offsets are those that ``transformers`` sees, which some tokenizers trim of leading spaces; else a
    token's offsets hold all of its characters.
    """

    def __init__(self, spec_json: str, *, trimmed: bool, long: int = LONG) -> None:
        parsed = orjson.loads(spec_json)
        if not trimmed:
            parsed["post_processor"] = None  # without added tokens all it does is to trim offsets
        self._json = json.dumps(parsed, ensure_ascii=False)
        self._tokenizer = Tokenizer.from_str(self._json)
        self._specials = {token["content"]: token for token in parsed.get("added_tokens") or () if token["special"]}
        longest_first = "|".join(re.escape(text) for text in sorted(self._specials, key=len, reverse=True) if text)
        self.specials = re.compile(longest_first) if longest_first else _NEVER
        """Matches a special string, the longest that begins at a place."""
        self.ending = re.compile(rf"\s*({longest_first})") if longest_first else _NEVER
        """Matches a special string behind white space."""
        self.long = long
        """A text of more characters is encoded in parts."""
        self._aliased: _Aliased | None = None

    def encode(self, texts: Sequence[str], *, offsets: bool) -> list[Tokens]:
        """Encode texts, every special string in them as its token; without ``offsets`` only ids are known.

        Those of more than ``long`` characters are encoded in parts: see :mod:`streamfeed.encode.long`.
        """
        many = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        short = iter(many([text for text in texts if len(text) <= self.long], add_special_tokens=False))
        return [
            _in_parts(self._tokenizer, text, self.long) if len(text) > self.long else _tokens(next(short))
            for text in texts
        ]

    def encode_apart(self, text: str, own: Iterable[Range]) -> Tokens:
        """Encode a text of which only the special strings at ``own`` are tokens, all others as ordinary text."""
        if self._aliased is None or not self._aliased.fits(text):
            self._aliased = _Aliased(self._json, self._specials, text)
        return self._aliased.encode(text, own, self.long)

    def own(self, text: str, foreign: Sequence[Range]) -> tuple[list[Range], int]:
        """Return where the template's own special strings are, and how many there are that touch a ``foreign`` range.

        ``foreign`` is in order and does not overlap.
        """
        own: list[Range] = []
        controls = at = 0
        ranges = iter(foreign)
        begin, end = next(ranges, _NOWHERE)
        while match := self.specials.search(text, at):
            while end <= match.start():
                begin, end = next(ranges, _NOWHERE)
            if match.end() <= begin:
                own.append(match.span())
                at = match.end()
            else:
                controls += 1
                at = min(match.end(), end)  # a string of the template that begins behind the range is still its own
        return own, controls


_NOWHERE: Range = (1 << 62, 1 << 62)


class _Aliased:
    """The tokenizer with all special strings as text, and for each an added word of private-use characters.

    An alias is as long as what it stands for and split off in the same way. So the text around it is normalized and cut
    as it would be beside the special string, and offsets are those of the text itself.
    """

    def __init__(self, spec_json: str, specials: dict[str, dict[str, Any]], text: str) -> None:
        first = _LAST + 1 - len(specials)
        while first > 0xF0000 and _holds(text, first, len(specials)):
            first -= len(specials)
        self._first, self._count = first, len(specials)
        self._tokenizer = Tokenizer.from_str(spec_json)
        self._tokenizer.encode_special_tokens = True
        self._aliases = {special: chr(first + i) * len(special) for i, special in enumerate(specials)}
        self._tokenizer.add_tokens([_alias(self._aliases[special], token) for special, token in specials.items()])
        highest = max([token["id"] for token in specials.values()], default=0)
        highest = max([highest, *self._tokenizer.get_vocab(with_added_tokens=True).values()])
        self._meaning = np.arange(highest + 1, dtype=np.int32)
        for special, alias in self._aliases.items():
            self._meaning[self._tokenizer.token_to_id(alias)] = specials[special]["id"]

    def fits(self, text: str) -> bool:
        """Say whether the text holds none of the aliases' characters."""
        return not _holds(text, self._first, self._count)

    def encode(self, text: str, own: Iterable[Range], long: int) -> Tokens:
        """See :meth:`ChatTokenizer.encode_apart`."""
        aliased = "".join(self._pieces(text, own))
        if len(aliased) > long:
            tokens = _in_parts(self._tokenizer, aliased, long)
        else:
            tokens = _tokens(self._tokenizer.encode(aliased, add_special_tokens=False))
        tokens.ids = self._meaning[tokens.ids]
        return tokens

    def _pieces(self, text: str, own: Iterable[Range]) -> Iterator[str]:
        at = 0
        for begin, end in own:
            yield text[at:begin]
            yield self._aliases[text[begin:end]]
            at = end
        yield text[at:]


def _alias(text: str, special: dict[str, Any]) -> AddedToken:
    flags = {name: special[name] for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(text, special=False, **flags)


def _holds(text: str, first: int, count: int) -> bool:
    if text.isascii() or not count:
        return False
    return re.search(f"[{chr(first)}-{chr(first + count - 1)}]", text) is not None


def _in_parts(tokenizer: Tokenizer, text: str, long: int) -> Tokens:
    def alone(part: str) -> NDArray[np.int32]:
        return _ids(tokenizer.encode(part, add_special_tokens=False))

    ids, characters = [], []
    for start, stop in parts_of(text, alone, long):
        encoding = tokenizer.encode(text[start:stop], add_special_tokens=False)
        ids.append(_ids(encoding))
        characters.append(np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2) + start)
    return Tokens(np.concatenate(ids), np.concatenate(characters))


def _tokens(encoding: Encoding) -> Tokens:
    return Tokens(_ids(encoding), encoding)


def _ids(encoding: Encoding) -> NDArray[np.int32]:
    return np.array(encoding.ids, dtype=np.int32)
