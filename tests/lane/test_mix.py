"""Mixtures: tokens by weight at all times, and nothing lost when sources end."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.lane.ahead import Ahead
from streamfeed.lane.mix import Mixer
from streamfeed.lane.runs import Run
from streamfeed.lane.state import Place, SourceState
from streamfeed.lane.texts import Texts
from streamfeed.lane.windows import Window
from streamfeed.stats import Tally
from tests.corpora import write_corpus
from tests.lanes import EOS, lane_of, plan_of, rows_of, texts_of

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = st.lists(st.integers(1, 9), min_size=2, max_size=4)


def feed(source: int, lengths: list[int], per_run: int) -> Ahead[Run]:
    """Runs of documents of these lengths, ``per_run`` in each; a token says which source it is of."""
    window = Window(Place(), Place(unit=1), Texts([b"x"] * len(lengths)), "d", Tally())
    found = []
    for first in range(0, len(lengths), per_run):
        offsets = np.cumsum([0, *lengths[first : first + per_run]], dtype=np.int64)
        tokens = np.full(int(offsets[-1]), source, dtype=np.int32)
        empty = np.diff(offsets) == 0
        counts = {"empty": np.concatenate(([0], np.cumsum(empty)))} if empty.any() else {}
        found.append(Run(source, tokens, offsets, window, first, len(empty), counts=counts))
    return Ahead(iter(found), None, 1)


def mixer(lengths: list[list[int]], weights: list[int], per_run: int = 3) -> Mixer:
    feeds = [feed(source, some, per_run) for source, some in enumerate(lengths)]
    return Mixer(feeds, [float(weight) for weight in weights], [SourceState() for _ in weights], Tally())


@given(WEIGHTS, st.data())
def test_every_source_has_its_share_of_tokens_within_a_few_documents_at_all_times(
    weights: list[int], data: st.DataObject
) -> None:
    longest = 12
    lengths = [data.draw(st.lists(st.integers(1, longest), min_size=40, max_size=40)) for _ in weights]
    mixed = mixer(lengths, weights)
    taken = [0] * len(weights)
    documents = 0
    while documents < 40:  # no source can have ended yet
        run = mixed.take()
        assert run is not None
        taken[run.source] += len(run.ids)
        documents += 1
        for source, weight in enumerate(weights):
            due = Fraction(weight, sum(weights)) * sum(taken)
            assert taken[source] - due <= longest
            assert due - taken[source] <= longest * (len(weights) - 1)


@given(WEIGHTS, st.data())
def test_every_document_of_every_source_comes_once_also_when_sources_end(
    weights: list[int], data: st.DataObject
) -> None:
    lengths = [data.draw(st.lists(st.integers(0, 5), max_size=15)) for _ in weights]
    mixed = mixer(lengths, weights, data.draw(st.integers(1, 4)))
    found: list[list[int]] = [[] for _ in weights]
    while (run := mixed.take()) is not None:
        assert set(run.ids.tolist()) == {run.source}
        found[run.source].append(len(run.ids))
    assert found == [[length for length in some if length] for some in lengths]
    assert mixed.tally.empty == sum(some.count(0) for some in lengths)
    assert mixed.take() is None


def test_ties_go_to_the_first_source() -> None:
    mixed = mixer([[2] * 4, [2] * 4], [1, 1])
    assert [run.source for run in iter(mixed.take, None)] == [0, 1] * 4


def test_a_source_that_ends_leaves_its_share_to_the_others_by_weight() -> None:
    mixed = mixer([[1], [1] * 60, [1] * 30], [5, 2, 1])
    order = [run.source for run in iter(mixed.take, None)]
    assert order.count(0) == 1
    assert Counter(order[10:40]) in ({1: 20, 2: 10}, {1: 21, 2: 9}, {1: 19, 2: 11})


@given(WEIGHTS, st.data())
def test_a_mixer_restarted_from_its_states_chooses_as_before(weights: list[int], data: st.DataObject) -> None:
    lengths = [data.draw(st.lists(st.integers(1, 9), max_size=8)) for _ in weights]
    mixed = mixer(lengths, weights, 1)
    order: list[tuple[int, int]] = []
    states = [mixed.states()]
    while (run := mixed.take()) is not None:
        order.append((run.source, len(run.ids)))
        states.append(mixed.states())
    for taken, state in enumerate(states):
        gone = Counter(source for source, _ in order[:taken])
        feeds = [feed(source, some[gone[source] :], 1) for source, some in enumerate(lengths)]
        again = Mixer(feeds, [float(weight) for weight in weights], state, Tally())
        assert [(run.source, len(run.ids)) for run in iter(again.take, None)] == order[taken:]


def corpora(folder: Path, counts: list[int]) -> list[Path]:
    for source, count in enumerate(counts):
        write_corpus("jsonl", folder / str(source), [f"{source}:{i}" for i in range(count)])
    return [folder / str(source) for source in range(len(counts))]


def test_a_source_with_fewer_records_than_lanes_is_read_whole_by_every_lane_when_repeating(tmp_path: Path) -> None:
    plan = plan_of(*corpora(tmp_path, [300, 3]), lanes=8, shuffle_buffer=64)
    for lane in range(8):
        tokens = [token for row, _, _ in rows_of(lane_of(plan, lane), 200) for token in row]
        found = Counter(texts_of(tokens))
        small = [found[f"1:{i}"] for i in range(3)]
        assert min(small) >= max(small) - 2 > 0, "each lane has all of it, equally often"
        assert sum(small) * 4 == pytest.approx(tokens.count(EOS) * 2, rel=0.3)


@pytest.mark.parametrize("counts", [[50, 3], [3, 50], [2, 1, 40]])
def test_a_finite_pass_over_a_mixture_has_every_record_once(counts: list[int], tmp_path: Path) -> None:
    plan = plan_of(*corpora(tmp_path, counts), lanes=8, epochs=2, shuffle_buffer=16)
    found: Counter[str] = Counter()
    for lane in range(8):
        found.update(texts_of([token for row, _, _ in rows_of(lane_of(plan, lane)) for token in row]))
    assert found == {f"{source}:{i}": 2 for source, count in enumerate(counts) for i in range(count)}
