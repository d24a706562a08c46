"""What a tokenizer's vocabulary says of its ids: which are special, and where words begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["Vocabulary", "WordTable"]

_BYTE_LEVEL_SPACES = ("Ġ", "Ċ", "ĉ", "č")  # space, newline, tab and return, as byte-level vocabularies write them
_METASPACE = "▁"


@dataclass(frozen=True, slots=True)
class WordTable:
    """Where words begin, bool ``[ids]`` each: at an id that ``begins`` one, and behind one that ``ends`` one."""

    begins: NDArray[np.bool_]
    ends: NDArray[np.bool_]


class Vocabulary:
    """The ids of ``spec``, read from its JSON once.

    ``special``: bool ``[ids]``, the added tokens that are special, and the BOS, EOS, pad and mask of the spec.
    ``ordinary``: int64, all other ids that have a token, ascending.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        parsed = orjson.loads(spec.json)
        self._name = spec.name
        self._model: Mapping[str, Any] = parsed["model"]
        added = parsed.get("added_tokens", [])
        self._tokens = {**_tokens(self._model), **{token["id"]: token["content"] for token in added}}
        named = (spec.bos_id, spec.eos_id, spec.pad_id, spec.mask_id)
        specials = {token["id"] for token in added if token["special"]} | {
            token for token in named if token is not None
        }
        size = max(spec.vocab_size, *(number + 1 for number in (*self._tokens, *specials)))
        self.special: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        self.special[list(specials)] = True
        self.ordinary: NDArray[np.int64] = np.asarray(sorted(self._tokens.keys() - specials), dtype=np.int64)

    def words(self) -> WordTable:
        """Return where words begin; special tokens stand alone.

        WordPiece and other vocabularies that mark continuations (``##``): at every token without the mark. Byte-level
        and Metaspace vocabularies: at a token that begins with white space, and behind one that ends with it. Raises
        :class:`~streamfeed.errors.ConfigError` where the vocabulary marks neither.
        """
        table = WordTable(self.special.copy(), self.special.copy())
        continuing = self._model.get("continuing_subword_prefix")
        suffix = self._model.get("end_of_word_suffix")
        if continuing:
            self._mark(table.begins, lambda token: not token.startswith(continuing))
        elif suffix:
            self._mark(table.ends, lambda token: token.endswith(suffix))
        else:
            spaces = self._spaces()
            self._mark(table.begins, lambda token: token.startswith(spaces))
            self._mark(table.ends, lambda token: token.endswith(spaces))
        return table

    def _mark(self, table: NDArray[np.bool_], has: Callable[[str], bool]) -> None:
        table[[number for number, token in self._tokens.items() if has(token)]] = True

    def _spaces(self) -> tuple[str, ...]:
        """Return how tokens write white space: the vocabulary's own way is the one that more tokens begin with."""
        counts = {mark: sum(token.startswith(mark) for token in self._tokens.values()) for mark in ("Ġ", _METASPACE)}
        if not any(counts.values()):
            raise ConfigError(
                f"whole_word needs a vocabulary that marks words, by ## or by the space before them; tokenizer "
                f"{self._name} ({self._model.get('type')}) marks none: set whole_word=False"
            )
        return _BYTE_LEVEL_SPACES if counts["Ġ"] >= counts[_METASPACE] else (_METASPACE, " ", "\n", "\t", "\r")


def _tokens(model: Mapping[str, Any]) -> dict[int, str]:
    """Return the model's tokens by id; Unigram models have a list of pairs in the place of a mapping."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {number: entry[0] for number, entry in enumerate(vocabulary)}
    return {number: token for token, number in vocabulary.items()}
