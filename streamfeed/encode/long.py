"""Long documents are encoded in parts, so that a megabyte costs as much in any text.

Engines hold all of a document's tokens at once, and what one takes grows faster than its size where a pre-tokenizer
finds nothing to split at (letters without a space), or everywhere (Unigram). A cut is made where it changes no ids: the
engine itself is asked, with a little text on both sides. Only where no such place is near, ids may differ at the cut.
"""

from __future__ import annotations

import unicodedata
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamfeed.encode.protocol import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.frame import Frame
    from streamfeed.encode.protocol import Engine

__all__ = ["LONG", "InParts", "parts_of"]

LONG = 1 << 18
"""A document of more characters is encoded in parts of at most as many."""

_TRIES = 16  # places of a kind that are tried
_AROUND = 256  # characters on both sides of a cut that are encoded to see whether it changes ids
_NEAR = 512  # characters that are looked through for a place without white space
_ZWJ = "\u200d"


class _Cut(NamedTuple):
    """The part before ends at ``stop``, the next begins at ``start``; a space between them is what both imply."""

    stop: int
    start: int


class InParts:
    """An engine that encodes documents of more than ``long`` characters in parts.

    ``frame``: what ``engine`` puts around each text, which a document in parts gets once; None: nothing.
    """

    def __init__(self, engine: Engine, frame: Frame | None, long: int = LONG) -> None:
        self._engine = engine
        self._before = [] if frame is None or frame.bos is None else [frame.bos]
        self._behind = [] if frame is None else [frame.eos]
        self._long = long

    @property
    def name(self) -> str:
        """The name of the engine that encodes."""
        return self._engine.name

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order; ``long`` of the result says which were encoded in parts."""
        sizes = list(map(len, texts))
        if not sizes or max(sizes) <= self._long:
            return self._engine.encode(texts)
        long = np.asarray(sizes) > self._long
        short = self._engine.encode(["" if is_long else text for text, is_long in zip(texts, long, strict=True)])
        lengths = np.diff(short.offsets)
        pieces: list[NDArray[np.int32]] = []
        done = 0
        for index in np.flatnonzero(long).tolist():
            ids = self._document(texts[index])
            place = int(short.offsets[index])
            pieces += [short.ids[done:place], ids]
            lengths[index] = len(ids)
            done = place
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Encoded(np.concatenate([*pieces, short.ids[done:]]), offsets, long.astype(np.int64))

    def _document(self, text: str) -> NDArray[np.int32]:
        # One call each: engines keep more than ids.
        pieces = [self._inner(text[start:stop]) for start, stop in parts_of(text, self._inner, self._long)]
        if not any(map(len, pieces)):
            return np.empty(0, dtype=np.int32)
        ends = (np.asarray(marks, dtype=np.int32) for marks in (self._before, self._behind))
        return np.concatenate([next(ends), *pieces, next(ends)])

    def _inner(self, text: str) -> NDArray[np.int32]:
        """Return the ids of a text without the frame."""
        ids = self._engine.encode([text]).ids
        return ids[len(self._before) : len(ids) - len(self._behind)] if len(ids) else ids


def parts_of(text: str, encode: Callable[[str], NDArray[np.int32]], long: int) -> Iterator[tuple[int, int]]:
    """Yield where the parts of a text begin and end, each of at most ``long`` characters.

    ``encode`` gives the ids of a text alone. A space between two parts may be left out: both imply it.
    """
    start = 0
    while len(text) - start > long:
        cut = _cut(text, start + long, encode, long)
        yield start, cut.stop
        start = cut.start
    yield start, len(text)


def _cut(text: str, latest: int, encode: Callable[[str], NDArray[np.int32]], long: int) -> _Cut:
    earliest = latest - long // 8
    for cut in chain(
        islice(_behind_newlines(text, earliest, latest), _TRIES),
        islice(_at_spaces(text, earliest, latest), 2 * _TRIES),
        islice(_at_marks(text, max(earliest, latest - _NEAR), latest), _TRIES),
    ):
        if _is_exact(text, cut, encode):
            return cut
    return _anywhere(text, max(earliest, latest - _NEAR), latest)


def _is_exact(text: str, cut: _Cut, encode: Callable[[str], NDArray[np.int32]]) -> bool:
    """Say whether the text around a cut has the same ids with and without it."""
    left, right = text[max(0, cut.stop - _AROUND) : cut.stop], text[cut.start : cut.start + _AROUND]
    whole = encode(left + text[cut.stop : cut.start] + right)
    return np.array_equal(whole, np.concatenate([encode(left), encode(right)]))


def _behind_newlines(text: str, earliest: int, latest: int) -> Iterator[_Cut]:
    for place in _last_of_blanks(text, "\n", earliest, latest):
        yield _Cut(place + 1, place + 1)


def _at_spaces(text: str, earliest: int, latest: int) -> Iterator[_Cut]:
    """Yield the cuts before a space, and those that leave it out: some tokenizers begin every text with one."""
    for place in _last_of_blanks(text, " ", earliest, latest):
        yield _Cut(place, place)
        yield _Cut(place, place + 1)


def _last_of_blanks(text: str, blank: str, earliest: int, latest: int) -> Iterator[int]:
    """Yield where ``blank`` stands last in each run of white space, the last run first."""
    place = text.rfind(blank, earliest, latest)
    while place >= 0:
        yield place
        while place > earliest and text[place - 1].isspace():
            place -= 1
        place = text.rfind(blank, earliest, place)


def _at_marks(text: str, earliest: int, latest: int) -> Iterator[_Cut]:
    """Yield the cuts behind punctuation and other signs, as between Chinese sentences."""
    for place in range(latest, earliest, -1):
        if not text[place - 1].isalnum() and _is_whole(text, place):
            yield _Cut(place, place)


def _anywhere(text: str, earliest: int, latest: int) -> _Cut:
    """Return the last place that parts no character from its marks; the last of all where there is none."""
    place = next((place for place in range(latest, earliest, -1) if _is_whole(text, place)), latest)
    return _Cut(place, place)


def _is_whole(text: str, place: int) -> bool:
    """Say whether no sequence of combined characters lies across ``place``, nor a line's two ends."""
    before, behind = text[place - 1], text[place]
    return not (
        unicodedata.category(behind)[0] == "M"
        or _ZWJ in (before, behind)
        or "\U0001f3fb" <= behind <= "\U0001f3ff"  # skin tones
        or "\U0001f1e6" <= before <= "\U0001f1ff"  # flags are pairs of letters
        or "\u1160" <= behind <= "\u11ff"  # a Hangul syllable's vowel or end
        or (before == "\r" and behind == "\n")
    )
