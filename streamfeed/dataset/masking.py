"""Masks of masked language modelling: drawn anew for every row and pass, and a function of nothing else.

A token's draw is a hash of seed, pass, the row's global number and its column. So a row has the same mask whatever the
batch size, the number of ranks or workers, and the place it has in a batch, and a resume needs no state. The hash is
SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): each row is a stream of it,
read at any column. ``tests/dataset/test_masking.py`` holds golden values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamfeed.dataset.batch import IGNORED
from streamfeed.encode.ranges import ranges
from streamfeed.encode.vocabulary import Vocabulary
from streamfeed.errors import ConfigError
from streamfeed.plan.order import order_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.encode.vocabulary import WordTable
    from streamfeed.objectives import Mlm

__all__ = ["LONGEST_WORD", "Masker", "split_mix"]

LONGEST_WORD = 16
"""Tokens of a word; a longer run without a mark (an address, a text without spaces) is several words."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ACTION_KEY = np.uint64(0xD1B54A32D192ED03)  # any odd number but the one above: a second draw for the chosen tokens
_LOW = np.uint64(0xFFFFFFFF)
_BLOCK = 32768  # tokens hashed at once: their draws stay in a core's cache, which is four times faster than a batch


class Masker:
    """Chooses tokens of rows, and masks them.

    Each token (or word) is chosen by itself with ``settings.probability``: the number in a row varies, and a short row
    may have none. Of the chosen, by token, 80 % become the mask token, 10 % any id that is not special, 10 % stay.
    Raises :class:`~streamfeed.errors.ConfigError` where the tokenizer has no mask token or no other ids, or marks no
    words where those are asked for.
    """

    def __init__(self, settings: Mlm, spec: TokenizerSpec, seed: int) -> None:
        if spec.mask_id is None:
            raise ConfigError(f"masked language modelling needs a mask token; tokenizer {spec.name} has none")
        vocabulary = Vocabulary(spec)
        if not len(vocabulary.ordinary):
            raise ConfigError(f"tokenizer {spec.name} has special tokens alone: nothing can be masked")
        self._mask_id = spec.mask_id
        self._special = vocabulary.special
        self._ordinary = vocabulary.ordinary
        self._words = vocabulary.words() if settings.whole_word else None
        self._below = np.uint64(int(settings.probability * 2**64))
        self._seed = seed

    def apply(
        self,
        input_ids: NDArray[np.int64],
        labels: NDArray[np.int64],
        lengths: NDArray[np.int32],
        rows: NDArray[np.int64],
        pass_number: int,
    ) -> None:
        """Mask ``input_ids``, ``[rows, seq_len]``, in place; ``labels``, of that shape, get the ids of what was chosen.

        All other labels are -100. ``lengths``: ``[rows]``, what counts of each row; special tokens and what is behind
        a row's length are never chosen. ``rows``: ``[rows]``, their global numbers.
        """
        for array in (input_ids, labels):
            if not array.flags.c_contiguous:
                raise ValueError("masking writes in place: input_ids and labels must be C-contiguous")
        labels.fill(IGNORED)
        count, seq_len = input_ids.shape
        key = np.uint64(order_key("mlm", self._seed, pass_number) & (2**64 - 1))
        row_keys = split_mix(rows.astype(np.uint64) * _GAMMA + key)
        columns = np.arange(1, seq_len + 1, dtype=np.uint64) * _GAMMA
        step = max(1, _BLOCK // max(1, seq_len))
        for first in range(0, count, step):
            part = slice(first, first + step)
            draws = split_mix(row_keys[part, None] + columns).reshape(-1)
            ids, targets = input_ids[part].reshape(-1), labels[part].reshape(-1)
            chosen = self._chosen(ids, draws, lengths[part], seq_len)
            originals = ids[chosen]
            targets[chosen] = originals
            ids[chosen] = self._shown(originals, draws[chosen])

    def _chosen(
        self, ids: NDArray[np.int64], draws: NDArray[np.uint64], lengths: NDArray[np.int32], seq_len: int
    ) -> NDArray[np.int64]:
        """Return which of the tokens ``[rows * seq_len]`` are chosen, ascending."""
        if self._words is None:
            chosen = np.flatnonzero(draws < self._below)
        else:
            chosen = _in_words(_word_starts(ids, self._words, seq_len), draws, self._below)
        chosen = chosen[~self._special[ids[chosen]]]
        if (lengths < seq_len).any():
            row, column = np.divmod(chosen, seq_len)
            chosen = chosen[column < lengths[row]]
        return chosen

    def _shown(self, originals: NDArray[np.int64], draws: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return what the model sees in the place of ``originals``: int64 ``[chosen]``."""
        actions = split_mix(draws ^ _ACTION_KEY)
        tenths = _scaled(actions >> np.uint64(32), 10)
        shown = np.where(tenths < 8, self._mask_id, originals)
        random = tenths == 8
        shown[random] = self._ordinary[_scaled(actions[random] & _LOW, len(self._ordinary))]
        return shown


def split_mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ``values`` after the output function of SplitMix64: uint64, in place."""
    shifted = np.empty_like(values)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
        np.right_shift(values, np.uint64(shift), out=shifted)
        values ^= shifted
        if factor is not None:
            values *= np.uint64(factor)
    return values


def _scaled(bits: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """Return numbers below ``count`` from 32 random bits each; uneven by less than ``count / 2**32``."""
    return ((bits * np.uint64(count)) >> np.uint64(32)).astype(np.int64)


def _word_starts(ids: NDArray[np.int64], words: WordTable, seq_len: int) -> NDArray[np.int64]:
    """Return where words start in the tokens ``[rows * seq_len]``, and the end: a row start is one, too."""
    begins = words.begins[ids]
    begins[1:] |= words.ends[ids[:-1]]
    begins[::seq_len] = True
    starts = np.append(np.flatnonzero(begins), len(ids))
    more = (np.diff(starts) - 1) // LONGEST_WORD
    long = np.flatnonzero(more)
    if not len(long):
        return starts
    inside = ranges(np.ones_like(long), more[long])
    cuts = np.repeat(starts[long], more[long]) + inside * LONGEST_WORD
    return np.sort(np.concatenate([starts, cuts]))


def _in_words(starts: NDArray[np.int64], draws: NDArray[np.uint64], below: np.uint64) -> NDArray[np.int64]:
    """Return the tokens of the words whose first token draws a number below ``below``."""
    chosen = np.flatnonzero(draws[starts[:-1]] < below)
    lengths = starts[chosen + 1] - starts[chosen]
    return ranges(starts[chosen], lengths)
