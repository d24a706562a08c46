"""Rows of a batch as text again: which document, which tokens have a loss, which are special."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.dataset.batch import IGNORED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["Decoder", "Document", "Row", "Span"]


@dataclass(frozen=True)
class Span:
    """Consecutive tokens that are treated alike.

    ``label``: they have a loss. ``special``: they are special tokens, not text. ``target`` is what is to be predicted
    where it is not what stands there: behind a mask.
    """

    text: str
    tokens: int
    label: bool
    special: bool
    target: str | None = None


@dataclass(frozen=True)
class Document:
    """A piece of a document: ``tokens`` tokens of a row from column ``start`` on."""

    start: int
    tokens: int
    spans: Sequence[Span]


@dataclass(frozen=True)
class Row:
    """Row ``number`` of the stream, of lane ``lane``: ``tokens`` tokens in room for ``width``; its class, if any."""

    number: int
    lane: int
    tokens: int
    width: int
    documents: Sequence[Document]
    ids: Sequence[int]
    labels: Sequence[int]
    chosen: int | None


class Decoder:
    """Takes batches apart that have the column ``document_ids``; needs no model."""

    def __init__(self, tokenizer: TokenizerSpec, lanes: int) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(tokenizer.json)
        added = json.loads(tokenizer.json).get("added_tokens") or ()
        self._special = np.asarray([token["id"] for token in added if token.get("special")], dtype=np.int64)
        self._lanes = lanes

    def rows(self, batch: Mapping[str, NDArray[np.int64]], first: int) -> Iterator[Row]:
        """Yield the rows of ``batch``, whose first is row ``first`` of the stream."""
        classes = batch["labels"].ndim == 1
        for index, ids in enumerate(batch["input_ids"]):
            owners = batch["document_ids"][index]
            length = int((owners >= 0).sum())
            ignored = np.full(len(ids), IGNORED, dtype=np.int64)
            labels = (ignored if classes else batch["labels"][index])[:length]
            chosen = int(batch["labels"][index]) if classes else None
            yield Row(
                number=first + index,
                lane=(first + index) % self._lanes,
                tokens=length,
                width=len(ids),
                documents=list(self._documents(ids[:length], labels, owners[:length])),
                ids=ids[:length].tolist(),
                labels=[] if classes else labels.tolist(),
                chosen=chosen if chosen is None or chosen >= 0 else None,
            )

    def _documents(
        self, ids: NDArray[np.int64], labels: NDArray[np.int64], owners: NDArray[np.int64]
    ) -> Iterator[Document]:
        for start, stop in _runs(owners):
            yield Document(start, stop - start, list(self._spans(ids[start:stop], labels[start:stop])))

    def _spans(self, ids: NDArray[np.int64], labels: NDArray[np.int64]) -> Iterator[Span]:
        label, special = labels != IGNORED, np.isin(ids, self._special)
        hidden = label & (labels != ids)
        kinds = label + 2 * special + 4 * hidden * (1 + np.arange(len(ids)))  # what is hidden stands alone
        for start, stop in _runs(kinds):
            yield Span(
                text=self._text(ids, start, stop),
                tokens=stop - start,
                label=bool(label[start]),
                special=bool(special[start]),
                target=self._decode(labels[start:stop]) if hidden[start] else None,
            )

    def _text(self, ids: NDArray[np.int64], start: int, stop: int) -> str:
        """Return what the tokens add to the text in front of them, since a decoder strips what it begins with."""
        before, whole = self._decode(ids[:start]), self._decode(ids[:stop])
        return whole[len(before) :] if whole.startswith(before) else self._decode(ids[start:stop])

    def _decode(self, ids: NDArray[np.int64]) -> str:
        text: str = self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)
        return text


def _runs(values: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield where runs of equal ``values`` begin and end."""
    if len(values):
        cuts = np.flatnonzero(values[1:] != values[:-1]) + 1
        yield from itertools.pairwise([0, *cuts.tolist(), len(values)])
