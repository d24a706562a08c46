"""The texts of a window, in the order in which they are packed.

Where they were read (an Arrow batch, lines of a block) they lie in another order, beside bytes that nobody wants. So
they are copied once into pieces of about what is encoded at once, in the order of use: what was read is let go of, and
a window shrinks while it is used, which over many lanes halves what windows take. Thousands of separate strings, freed
in shuffled order, would leave a heap full of holes instead, and a text with one emoji takes four bytes a character.
Pieces of large windows lie in huge pages (``lane/pages.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, overload

from streamfeed.lane.pages import Filling

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from streamfeed.lane.pages import Page, Pages

__all__ = ["Texts"]

Utf8 = bytes | memoryview


class _Piece(NamedTuple):
    """Texts ``start`` and following: ``data[bounds[i]:bounds[i + 1]]``, UTF-8. ``page``: where ``data`` lies, if so."""

    start: int
    data: Utf8
    bounds: list[int]
    page: Page | None = None

    def decoded(self) -> list[str]:
        with memoryview(self.data) as view:
            return [str(view[begin:end], "utf-8") for begin, end in pairwise(self.bounds)]


class Texts(Sequence[str]):
    """``documents``, each UTF-8, in some ``order``; equal to any sequence of the same strings.

    It holds them until :meth:`drain` is called, once; then it only knows how many there were, and ``pages`` hold them
    until they are used, where there are many.
    """

    def __init__(
        self, documents: Sequence[Utf8], order: NDArray[np.int64] | None = None, pages: Pages | None = None
    ) -> None:
        self._pages = pages
        self._documents = documents if order is None else [documents[index] for index in order.tolist()]
        self._count = len(documents)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [str(document, "utf-8") for document in self._documents[index]]
        return str(self._documents[index], "utf-8")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and large

    def drain(self, first: int, nbytes: int, count: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """Yield the texts from ``first`` on, ``nbytes`` or a little more at a time, each time with the first's number.

        With ``count``, always so many of them (fewer at the end). What was yielded is not kept.
        """
        pieces = deque(self._pieces(first, nbytes, count))
        self._documents = []
        while pieces:
            yield self._drained(pieces.popleft())  # bound to no name: a generator that waits holds what it names

    def _drained(self, piece: _Piece) -> tuple[int, list[str]]:
        texts = piece.decoded()
        if self._pages is not None and piece.page is not None:
            self._pages.used(piece.page)
        return piece.start, texts

    def _pieces(self, first: int, nbytes: int, count: int | None) -> Iterator[_Piece]:
        sizes = [len(document) for document in self._documents]
        filling = Filling(self._pages, sum(sizes[first:]))
        start, total = first, 0
        for index in range(first, len(sizes)):
            total += sizes[index]
            full = total >= nbytes if count is None else index + 1 - start == count
            if full or index == len(sizes) - 1:
                documents = self._documents[start : index + 1]
                data, page = filling.put(documents, total) or (b"".join(documents), None)
                yield _Piece(start, data, [0, *accumulate(sizes[start : index + 1])], page)
                start, total = index + 1, 0
