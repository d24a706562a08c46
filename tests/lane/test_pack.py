"""Packing: the rows are the concatenation of the documents, however it came in runs."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.lane.pack import ConcatPacker, Flat
from streamfeed.lane.runs import Run
from streamfeed.lane.state import Place
from streamfeed.lane.texts import Texts
from streamfeed.lane.windows import Window
from streamfeed.stats import Tally
from tests.lanes import block_rows, ids

NO_WINDOW = Window(Place(), Place(), Texts([]), "", Tally())
Packing = tuple[list[list[int]], list[int]]


def run_of(documents: list[list[int]], *, cut: int = 0) -> Run:
    """A run of ``documents``; the first ``cut`` tokens of the first are in earlier rows."""
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    tokens = ids(*itertools.chain(*documents))
    empty = [not document for document in documents]
    counts = {"empty": np.cumsum([0, *empty], dtype=np.int64)} if any(empty) else {}
    run = Run(0, tokens, offsets, NO_WINDOW, 0, len(documents), counts=counts)
    return run.behind(0, cut) if cut else run


def pack(runs: list[Run], seq_len: int) -> tuple[list[list[int]], set[int], list[int]]:
    """Return the rows, where documents start in the concatenation of all rows, and the last, partial row."""
    packer = ConcatPacker(seq_len)
    rows: list[list[int]] = []
    starts: list[int] = []
    for run in runs:
        for packed in packer.feed(run):
            assert (np.diff(packed.starts) > 0).all()
            starts += [len(rows) * seq_len + int(start) for start in packed.starts]
            rows += block_rows(packed)
    last = packer.flush()
    assert packer.flush() is None
    tail = [] if last is None else block_rows(last)[0]
    if last is not None:
        starts += [len(rows) * seq_len + int(start) for start in last.starts]
    assert starts == sorted(starts)
    return rows, set(starts), tail


def reference(documents: list[list[int]], seq_len: int) -> tuple[list[list[int]], set[int], list[int]]:
    tokens: list[int] = []
    starts: set[int] = set()
    for document in documents:
        if document:
            starts.add(len(tokens))
        tokens += document
    full = len(tokens) // seq_len
    return [tokens[i * seq_len : (i + 1) * seq_len] for i in range(full)], starts, tokens[full * seq_len :]


DOCUMENTS = st.lists(st.lists(st.integers(0, 1 << 20), max_size=9), max_size=30)


@given(DOCUMENTS, st.integers(2, 12), st.sets(st.integers(0, 30)))
def test_any_cut_into_runs_gives_the_rows_and_starts_of_the_concatenation(
    documents: list[list[int]], seq_len: int, cuts: set[int]
) -> None:
    bounds = sorted({0, len(documents), *(cut for cut in cuts if cut < len(documents))})
    runs = [run_of(documents[start:stop]) for start, stop in itertools.pairwise(bounds)]
    assert pack(runs, seq_len) == reference(documents, seq_len)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=20), st.integers(2, 7), st.data())
def test_a_document_that_continues_is_a_piece_of_its_own(first: list[int], seq_len: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(first) - 1))
    documents = [first, [1], [], [2, 3]]
    assert pack([run_of(documents, cut=cut)], seq_len) == reference([first[cut:], *documents[1:]], seq_len)


def test_rows_are_counted_with_what_was_carried_into_them() -> None:
    packer = ConcatPacker(4)
    assert packer.feed(run_of([[1, 2, 3]])) == []
    (packed,) = packer.feed(run_of([[4], [5, 6]]))
    assert (block_rows(packed), packed.starts.tolist(), packed.carried) == ([[1, 2, 3, 4]], [0, 3], 3)
    last = packer.flush()
    assert last is not None
    assert (block_rows(last), last.starts.tolist(), last.carried) == ([[5, 6]], [0], 2)


def test_of_a_large_run_only_the_row_that_was_begun_is_copied() -> None:
    packer = ConcatPacker(4)
    packer.feed(run_of([[1]]))
    run = run_of([list(range(100, 150))])
    begun, rest = packer.feed(run)
    assert (block_rows(begun), begun.carried, rest.carried) == ([[1, 100, 101, 102]], 1, -3)
    assert isinstance(rest.ids, Flat)
    assert np.shares_memory(rest.ids.data, run.ids)


def test_what_is_carried_does_not_hold_on_to_a_large_run() -> None:
    packer = ConcatPacker(1000)
    packer.feed(run_of([[1] * 100_500]))
    assert packer._carry.base is None
    assert len(packer._carry) == 500
