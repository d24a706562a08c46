"""What a model takes, out of the planes of a batch: the columns of every objective, and those asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch

from streamfeed.dataset.masking import Masker
from streamfeed.encode.objectives.protocol import SECOND
from streamfeed.errors import ConfigError
from streamfeed.objectives import Classification, Mlm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from streamfeed.config import StreamConfig
    from streamfeed.dataset.batch import BatchArrays
    from streamfeed.dataset.share import Share
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.loader.memory import Batch
    from streamfeed.loader.reader import Filled

__all__ = ["COLUMNS", "Column", "Columns", "check_columns", "columns_for"]

Column = Literal["document_ids", "cu_seqlens"]
COLUMNS: tuple[Column, ...] = ("document_ids", "cu_seqlens")
"""Columns that are there only when they are asked for; ``cu_seqlens`` brings ``max_seqlen``."""


class _Rows(NamedTuple):
    """One batch: its planes, lengths int32 ``[rows]``, and where pieces begin, as ``row * seq_len + column``."""

    arrays: BatchArrays
    lengths: NDArray[np.int32]
    pieces: NDArray[np.int64]


class Columns:
    """Makes batches of rows that are in.

    ``type_ids``: whether the model takes token types. ``mask`` hides what a masked language model predicts.
    ``pad_to_multiple_of``: the width of batches that are padded to their longest row is a multiple of it.
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        asked: Sequence[Column] = (),
        pad_to_multiple_of: int | None = None,
        type_ids: bool = False,
        mask: Callable[[BatchArrays, Filled], None] | None = None,
    ) -> None:
        self._padded = config.packing == "none"
        self._classes = isinstance(config.objective, Classification)
        self._positions = not (self._padded and (self._classes or isinstance(config.objective, Mlm)))
        self._type_ids = self._classes and type_ids
        self._asked = frozenset(asked)
        self._multiple = pad_to_multiple_of or 1
        self._mask = mask

    @property
    def trivial(self) -> bool:
        """Whether the planes are the batch already."""
        return not (self._padded or self._asked or self._mask)

    def make(self, arrays: BatchArrays, filled: Filled, count: int, planes: Sequence[Batch]) -> list[Batch]:
        """Return ``count`` batches of the rows in ``arrays``, whose parts ``planes`` are as tensors."""
        if self._mask is not None:
            self._mask(arrays, filled)
        if not (self._padded or self._asked):
            return list(planes[:count])
        size, seq_len = planes[0]["input_ids"].shape
        bounds = filled.pieces.searchsorted(np.arange(count + 1) * (size * seq_len)).tolist()
        return [
            self._batch(
                plane,
                _Rows(
                    arrays.rows(index * size, (index + 1) * size),
                    filled.lengths[index * size : (index + 1) * size],
                    filled.pieces[bounds[index] : bounds[index + 1]] - index * size * seq_len,
                ),
            )
            for index, plane in zip(range(count), planes, strict=False)
        ]

    def _batch(self, plane: Batch, rows: _Rows) -> Batch:
        width = rows.arrays.input_ids.shape[1]
        if self._padded:
            longest = max(1, int(rows.lengths.max()))
            width = min(width, -(-longest // self._multiple) * self._multiple)
        made = {"input_ids": plane["input_ids"], "labels": plane["labels"], "position_ids": plane["position_ids"]}
        if not self._positions:
            del made["position_ids"]
        if self._padded:
            made = {name: tensor[:, :width].clone() for name, tensor in made.items()}
            shown = np.arange(width) < rows.lengths[:, None]
            made["attention_mask"] = torch.from_numpy(shown.astype(np.int64))
        if self._classes:
            made["labels"] = torch.from_numpy(_present(rows.arrays.values).copy())
        if self._type_ids:
            made["token_type_ids"] = torch.from_numpy(_types(rows, width))
        if "document_ids" in self._asked:
            made["document_ids"] = torch.from_numpy(_document_ids(rows, width))
        if "cu_seqlens" in self._asked:
            ends = _cu_seqlens(rows, width)
            made["cu_seqlens"] = torch.from_numpy(ends)
            made["max_seqlen"] = torch.tensor(int(np.diff(ends).max()), dtype=torch.int32)
        return made


def check_columns(config: StreamConfig, asked: Sequence[Column], pad_to_multiple_of: int | None) -> None:
    """Raise :class:`~streamfeed.errors.ConfigError` for columns that there are not, and a width that cannot be."""
    strange = [name for name in asked if name not in COLUMNS]
    if strange:
        raise ConfigError(f"columns takes names among {', '.join(COLUMNS)}, got {strange[0]!r}")
    if pad_to_multiple_of is None:
        return
    if config.packing != "none":
        raise ConfigError(f"pad_to_multiple_of is for packing='none': with {config.packing!r} every row has seq_len")
    if pad_to_multiple_of < 1 or config.seq_len % pad_to_multiple_of:
        raise ConfigError(f"pad_to_multiple_of must divide seq_len {config.seq_len}, got {pad_to_multiple_of}")


def columns_for(
    config: StreamConfig,
    tokenizer: TokenizerSpec,
    share: Share,
    pass_number: int,
    asked: Sequence[Column] = (),
    pad_to_multiple_of: int | None = None,
) -> Columns | None:
    """Return what makes the batches of a rank in a pass; None where nothing is to be made."""
    mask = None
    if isinstance(config.objective, Mlm):
        masker = Masker(config.objective, tokenizer, config.seed)

        def mask(arrays: BatchArrays, filled: Filled) -> None:
            rows = share.rank + share.world * (filled.first + np.arange(len(filled.lengths), dtype=np.int64))
            masker.apply(arrays.input_ids, arrays.labels, filled.lengths, rows, pass_number)

    made = Columns(config, asked=asked, pad_to_multiple_of=pad_to_multiple_of, type_ids=tokenizer.type_ids, mask=mask)
    return None if made.trivial else made


def _present(values: NDArray[np.int64] | None) -> NDArray[np.int64]:
    assert values is not None, "the layout of a classification has values"
    return values


def _types(rows: _Rows, width: int) -> NDArray[np.int64]:
    """Return token types, 0 or 1, int64 ``[rows, width]``; 0 where there is padding."""
    flags = rows.arrays.flags
    if flags is None:
        return np.zeros((len(rows.lengths), width), dtype=np.int64)
    second = (flags[:, :width] & SECOND) > 0
    return (second & (np.arange(width) < rows.lengths[:, None])).astype(np.int64)


def _document_ids(rows: _Rows, width: int) -> NDArray[np.int32]:
    """Return which piece of its row each token is of, from 0 on; -1 for padding. int32 ``[rows, width]``."""
    shape = rows.arrays.input_ids.shape
    marks = np.zeros(shape[0] * shape[1], dtype=np.int32)
    marks[rows.pieces] = 1
    numbers = np.cumsum(marks.reshape(shape), axis=1, dtype=np.int32)[:, :width] - 1
    numbers[np.arange(width) >= rows.lengths[:, None]] = -1
    return numbers


def _cu_seqlens(rows: _Rows, width: int) -> NDArray[np.int32]:
    """Return where pieces begin in the batch laid end to end, and its end: int32 ``[pieces + 1]``; padding is one."""
    row, column = np.divmod(rows.pieces, rows.arrays.input_ids.shape[1])
    inside = column < width
    begins = row[inside] * width + column[inside]
    return np.append(np.unique(begins), len(rows.lengths) * width).astype(np.int32)
