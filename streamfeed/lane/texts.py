"""The texts of a window as one piece of memory.

Thousands of separate strings of a window, freed in shuffled order, leave a heap full of holes, and a text with one
emoji takes four bytes a character. One piece of UTF-8 a window takes what the texts take and goes back whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Texts"]


class Texts(Sequence[str]):
    """Texts in some order of the pieces of ``data``: piece ``i`` is ``data[bounds[i]:bounds[i + 1]]``, UTF-8.

    Equal to any sequence of the same strings. A slice is a list of strings, decoded when it is asked for.
    """

    def __init__(self, data: bytes, sizes: Sequence[int], order: NDArray[np.int64] | None = None) -> None:
        ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
        begins = ends - np.asarray(sizes, dtype=np.int64)
        self._data = data
        self._begins: list[int] = (begins if order is None else begins[order]).tolist()
        self._ends: list[int] = (ends if order is None else ends[order]).tolist()

    def __len__(self) -> int:
        return len(self._begins)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, int):
            return self._data[self._begins[index] : self._ends[index]].decode()
        pairs = zip(self._begins[index], self._ends[index], strict=True)
        with memoryview(self._data) as view:
            return [str(view[begin:end], "utf-8") for begin, end in pairs]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and large

    def sizes(self) -> list[int]:
        """Return every text's size in UTF-8 bytes."""
        return [end - begin for begin, end in zip(self._begins, self._ends, strict=True)]
