"""Best-fit packing: every token of every document once, little padding, and windows that only the documents decide."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.lane.best_fit import WINDOW_DOCUMENTS, WINDOW_ROWS, WINDOW_TOKENS, BestFitPacker, best_fit, bundles
from streamfeed.lane.runs import Run
from tests.lane.test_pack import NO_WINDOW
from tests.lanes import block_rows, rows_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfeed.lane.pack import Packed

SPAN = 10_000
GOLDEN_ROWS = [96, 96, 64, 64, 3]
GOLDEN_BEST_FIT = "d1b013b2c494e015"
LENGTHS = st.lists(st.integers(0, 30), max_size=60)


def run_of(lengths: Sequence[int], first: int = 0) -> Run:
    """A run of documents of these lengths; a token is ``SPAN * document + place``, and its flag ``document % 4``."""
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    numbers = range(first, first + len(lengths))
    tokens = [SPAN * number + place for number, length in zip(numbers, lengths, strict=True) for place in range(length)]
    flags = [number % 4 for number, length in zip(numbers, lengths, strict=True) for _ in range(length)]
    return Run(
        source=0,
        ids=np.asarray(tokens, dtype=np.int32),
        offsets=offsets,
        window=NO_WINDOW,
        first=first,
        documents=len(lengths),
        flags=np.asarray(flags, dtype=np.uint8),
    )


def packed(lengths: Sequence[int], seq_len: int, cuts: Sequence[int] = (), lane: int = 0) -> list[Packed]:
    """Pack documents that come in runs cut at ``cuts``; the last part is what was held at the end."""
    packer = BestFitPacker(seq_len, 7, lane, 0)
    bounds = sorted({0, len(lengths), *(cut % (len(lengths) + 1) for cut in cuts)})
    found = [part for a, b in itertools.pairwise(bounds) for part in packer.feed(run_of(lengths[a:b], first=a))]
    last = packer.flush()
    assert packer.flush() is None
    return found if last is None else [*found, last]


def pieces_of(part: Packed) -> list[list[int]]:
    """The pieces of a part, by its starts and lengths."""
    return [piece for row in pieces_by_row(part) for piece in row]


def pieces_by_row(part: Packed) -> list[list[list[int]]]:
    """The pieces of every row of a part."""
    assert part.flags is not None
    assert (np.diff(part.starts) > 0).all()
    starts = np.split(part.starts, part.starts.searchsorted(np.arange(1, len(part)) * part.width))
    found = []
    rows = zip(block_rows(part), rows_in(part, part.flags, np.uint8), strict=True)
    for row, (ids, flags) in enumerate(rows):
        own = (starts[row] - row * part.width).tolist()
        assert own[0] == 0
        assert flags == [token // SPAN % 4 for token in ids]
        found.append([ids[a:b] for a, b in itertools.pairwise([*own, len(ids)])])
    return found


@given(st.lists(st.integers(1, 40), min_size=1, max_size=80), st.integers(40, 60))
def test_no_bin_is_fuller_than_its_room_and_no_two_pieces_overlap(lengths: list[int], room: int) -> None:
    fit = best_fit(np.asarray(lengths, dtype=np.int64), room)
    taken = np.zeros((fit.bins, room), dtype=int)
    for index, length in enumerate(lengths):
        row, start = divmod(int(fit.starts[index]), room)
        assert start + length <= room
        taken[row, start : start + length] += 1
    assert taken.max() == 1
    assert (taken.sum(axis=1) > 0).all()


@given(st.lists(st.integers(1, 12), min_size=1, max_size=60), st.integers(12, 20))
def test_pieces_go_where_plain_best_fit_decreasing_puts_them(lengths: list[int], room: int) -> None:
    left: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [space for space in left if space >= length]
        if fitting:
            left.remove(min(fitting))
            left.append(min(fitting) - length)
        else:
            left.append(room - length)
    fit = best_fit(np.asarray(lengths, dtype=np.int64), room)
    assert fit.bins == len(left)
    used = np.bincount(fit.starts // room, weights=lengths, minlength=fit.bins)
    assert sorted(room - used) == sorted(left)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=400))
def test_bundles_are_neighbours_that_fit_a_row_and_long_pieces_are_none(lengths: list[int]) -> None:
    sizes = np.asarray(lengths, dtype=np.int64)
    first = bundles(sizes.cumsum() - sizes, sizes, 64).tolist()
    assert first[0] == 0
    for begin, end in itertools.pairwise([*first, len(lengths)]):
        assert begin < end
        if end - begin > 1:
            assert max(lengths[begin:end]) <= 16
            assert sum(lengths[begin:end]) < 32 + 16
    singles = max(1, sum(lengths) // 64)
    assert first[-singles:] == list(range(len(lengths))[-singles:])


@pytest.mark.parametrize("median", [8, 20, 60, 150, 300])
def test_rows_of_short_documents_are_as_full_though_most_go_in_bundles(median: int) -> None:
    draw = np.random.default_rng(0)
    lengths = np.maximum(1, np.exp(draw.normal(np.log(median), 1.0, 1_200_000 // median))).astype(int).tolist()
    parts = packed(lengths, 2048)[:-1]
    assert len(parts) > 1
    for part in parts:
        assert int(_lengths(part).sum()) / (len(part) * part.width) >= 0.975
    filled = sum(int(_lengths(part).sum()) for part in parts) / sum(len(part) * part.width for part in parts)
    assert filled >= 0.99


@given(LENGTHS, st.integers(2, 9) | st.integers(20, 60), st.lists(st.integers(0, 60), max_size=6), st.integers(0, 4))
def test_every_token_of_every_document_is_packed_once_and_only_long_documents_are_cut(
    lengths: list[int], seq_len: int, cuts: list[int], many: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", 5)
        patch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 2)
        patch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
        patch.setattr("streamfeed.lane.best_fit.MANY_PIECES", many)
        parts = packed(lengths, seq_len, cuts)
        whole = packed(lengths, seq_len)
    pieces = [piece for part in parts for piece in pieces_of(part)]
    tokens = sorted(token for piece in pieces for token in piece)
    assert tokens == [SPAN * number + place for number, length in enumerate(lengths) for place in range(length)]
    for piece in pieces:
        number, place = divmod(piece[0], SPAN)
        assert piece == list(range(piece[0], piece[0] + len(piece)))
        assert place % seq_len == 0
        assert len(piece) == min(seq_len, lengths[number] - place)
    assert [block_rows(part) for part in parts] == [block_rows(part) for part in whole]  # whatever the runs
    assert [part.ids.chains(1) for part in parts] == [part.ids.chains(1) for part in whole]


@pytest.mark.parametrize("seq_len", [16, 17])
@pytest.mark.parametrize("delta", range(-2, 3))
@pytest.mark.parametrize("multiple", [1, 2, 3])
def test_documents_of_about_a_multiple_of_a_row_lose_nothing(seq_len: int, delta: int, multiple: int) -> None:
    lengths = [multiple * seq_len + delta] * 10
    pieces = [piece for part in packed(lengths, seq_len) for piece in pieces_of(part)]
    assert sum(map(len, pieces)) == sum(lengths)
    assert len(pieces) == 10 * -(-lengths[0] // seq_len)


def test_a_window_holds_at_least_256_documents_and_64_rows_and_half_a_million_tokens() -> None:
    short, long, wide = packed([10] * 53_000, 64), packed([3000] * 300, 2048), packed([300] * 2200, 10_000)
    for part in (*short[:-1], *long[:-1], *wide[:-1]):
        assert sum(piece[0] % SPAN == 0 for piece in pieces_of(part)) >= WINDOW_DOCUMENTS
        assert len(part) >= WINDOW_ROWS
        assert int(_lengths(part).sum()) >= WINDOW_TOKENS - part.width
    assert [len(parts) for parts in (short, long, wide)] == [2, 2, 2]


def test_rows_of_common_lengths_are_99_percent_full_on_average_and_95_at_least() -> None:
    """Documents of log-normal length, median 600 tokens, sigma 1.0, in rows of 2048."""
    draw = np.random.default_rng(0)
    shares = []
    for lane in range(100):
        lengths = np.maximum(2, np.exp(draw.normal(np.log(600), 1.0, WINDOW_DOCUMENTS))).astype(int).tolist()
        (part,) = packed(lengths, 2048, lane=lane)
        shares.append(int(_lengths(part).sum()) / (len(part) * part.width))
    assert np.mean(shares) >= 0.99
    assert min(shares) >= 0.95


def test_long_documents_do_not_come_first() -> None:
    draw = np.random.default_rng(1)
    lengths = np.maximum(2, np.exp(draw.normal(np.log(100), 1.0, 800))).astype(int).tolist()
    parts = packed(lengths, 256)
    longest = [len(piece) for part in parts for piece in _first_of_rows(part)]
    half = len(longest) // 2
    assert abs(np.mean(longest[:half]) - np.mean(longest[half:])) < 0.2 * np.mean(longest)
    assert block_rows(packed(lengths, 256, lane=1)[0]) != block_rows(parts[0])


def test_the_rows_of_a_small_window_are_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Golden values: raise ORDER_VERSION where they change."""
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    lengths = [(7 * i * i + 3 * i) % 50 + 1 for i in range(600)] + [i * i % 13 + 1 for i in range(900)]
    parts = packed(lengths, 64, lane=3)
    assert [len(part) for part in parts] == GOLDEN_ROWS
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(np.asarray(list(itertools.chain(*block_rows(part))), dtype=np.int32).tobytes())
        digest.update(part.starts.tobytes())
    assert digest.hexdigest() == GOLDEN_BEST_FIT


def _lengths(part: Packed) -> NDArray[np.int32]:
    assert part.lengths is not None
    return part.lengths


def _first_of_rows(part: Packed) -> list[list[int]]:
    """The longest piece of every row, which best-fit decreasing puts first."""
    return [row[0] for row in pieces_by_row(part)]
