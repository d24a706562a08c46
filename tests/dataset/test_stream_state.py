"""The state of a run: merged, checked, and refused by name."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source, StreamConfig, merge_states
from streamfeed.dataset.state import StreamState
from streamfeed.encode.proof import Verdict
from streamfeed.errors import StateError
from streamfeed.lane.state import LaneState
from streamfeed.plan.fingerprint import differences
from tests.corpora import texts_with_ids, write_corpus
from tests.streams import CACHE, InProcessLoader, Run, corpus, equal, stream, take
from tests.tokenizers_for_tests import build_bpe

if TYPE_CHECKING:
    from pathlib import Path

NOT_PROVEN = Verdict("huggingface", "not proven in this test")
pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any) -> StreamConfig:
    corpus(tmp_path / "data", "jsonl", [40, 30])
    return stream(tmp_path / "data", "jsonl", tokenizer)


def load(config: StreamConfig, state: dict[str, Any]) -> InProcessLoader:
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    loader.load_state_dict(state)
    return loader


def rank_states(config: StreamConfig, ranks: int = 2, batches: int = 3) -> list[dict[str, Any]]:
    run = Run.start(config, ranks, 2)
    run.take(batches)
    return [loader.state_dict() for loader in run.loaders]


def test_a_merged_state_holds_every_lane_at_its_furthest(config: StreamConfig) -> None:
    states = rank_states(config, ranks=2)
    assert [sorted(state["lanes"]) for state in states] == [["0", "2"], ["1", "3"]]
    merged = merge_states(states)
    assert sorted(merged["lanes"]) == ["0", "1", "2", "3"]
    assert merged["rows"] == 12
    assert merge_states(reversed(states)) == merged
    assert merge_states([merged, *states]) == merged
    behind = deepcopy(merged)
    behind["lanes"]["0"]["rows"] -= 1
    assert merge_states([behind, merged]) == merged


def test_states_of_unequal_steps_are_not_merged(config: StreamConfig) -> None:
    first, later = rank_states(config, batches=3)[0], rank_states(config, batches=4)[1]
    with pytest.raises(StateError, match="state 1 was saved at row 16 of pass 0 and state 0 at row 12 of pass 0"):
        merge_states([first, later])


def test_states_of_unequal_passes_ends_versions_and_streams_are_not_merged(config: StreamConfig) -> None:
    one, two = rank_states(config)
    for changes, message in (
        ({"pass": 1}, "pass 1"),
        ({"ended": True}, "same step"),
        ({"version": 1}, "version 1, this streamfeed reads 2"),
        ({"fingerprint": {**two["fingerprint"], "seed": 5}}, "seed: 0 in the state, 5 now"),
    ):
        with pytest.raises(StateError, match=message):
            merge_states([one, {**two, **changes}])
    with pytest.raises(StateError, match="no states to merge"):
        merge_states([])


def test_one_ranks_state_is_refused_and_the_lanes_that_it_lacks_are_named(config: StreamConfig) -> None:
    state = rank_states(config)[0]
    with pytest.raises(StateError, match=r"lacks 2 of 4 lanes \(1, 3\).*merge_states"):
        load(config, state)


def test_a_lane_ahead_of_its_share_is_refused(config: StreamConfig) -> None:
    state = merge_states(rank_states(config))
    state["lanes"]["2"]["rows"] = 4
    with pytest.raises(StateError, match="lane 2 stands at row 4"):
        load(config, state)


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.pop("version"),
        lambda state: state.pop("rows"),
        lambda state: state.pop("fingerprint"),
        lambda state: state["fingerprint"].pop("lanes"),
        lambda state: state["fingerprint"].pop("sources"),
        lambda state: state.update(rows=-2),
        lambda state: state.update(rows="many"),
        lambda state: state.update(lanes=[1, 2]),
        lambda state: state["lanes"].update(x=state["lanes"]["0"]),
        lambda state: state["lanes"].update({"7": state["lanes"]["0"]}),
        lambda state: state["lanes"].update({"0": 5}),
        lambda state: state["lanes"]["0"].update(sources=[]),
        lambda state: state["lanes"]["0"].pop("chain"),
        lambda state: state["lanes"]["0"]["sources"][0].update(unit="0"),
    ],
)
def test_a_damaged_state_is_a_state_error(damage: Any, config: StreamConfig) -> None:
    state = json.loads(json.dumps(merge_states(rank_states(config))))
    damage(state)
    with pytest.raises(StateError):
        load(config, state)


@pytest.mark.parametrize("state", [{}, [], None, "text", {"stream": {}}])
def test_what_is_no_state_is_refused(state: Any, config: StreamConfig) -> None:
    with pytest.raises(StateError, match="not the state of a stream"):
        load(config, state)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed: 0 in the state, 1 now"),
        ({"seq_len": 64}, "seq_len: 32 in the state, 64 now"),
        ({"shuffle_buffer": 25}, "shuffle_buffer: 24 in the state, 25 now"),
        ({"window_bytes": 1 << 20}, "window_bytes: "),
        ({"on_error": "skip"}, "on_error: 'raise' in the state, 'skip' now"),
        ({"lanes": 2}, "lanes: 4 in the state, 2 now"),
    ],
)
def test_a_state_of_other_settings_is_refused_with_what_differs(
    changes: dict[str, Any], named: str, config: StreamConfig
) -> None:
    state = merge_states(rank_states(config))
    with pytest.raises(StateError, match="another stream") as caught:
        load(replace(config, **changes), state)
    assert named in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2, "nothing else differs"


def test_a_state_of_other_sources_is_refused_with_what_differs(config: StreamConfig, tmp_path: Path) -> None:
    state = merge_states(rank_states(config))
    source = config.sources[0]

    def refusal(*sources: Source) -> str:
        with pytest.raises(StateError, match="another stream") as caught:
            load(replace(config, sources=sources), state)
        return str(caught.value)

    assert "sources[0].text: 'text' in the state, 'id' now" in refusal(replace(source, text="id"))
    assert "sources[0].weight: 1.0 in the state, 2.0 now" in refusal(replace(source, weight=2))
    assert "sources: 1 in the state, 2 now" in refusal(source, source)
    grown = tmp_path / "data" / "000.jsonl"
    content = grown.read_bytes()
    grown.write_bytes(content + b"\n")
    message = refusal(source)
    assert "sources[0].bytes: " in message
    assert "sources[0].hash: " in message
    grown.write_bytes(content)
    grown.rename(grown.with_name("001b.jsonl"))
    assert "sources[0].hash: " in refusal(source)


def test_a_state_of_another_tokenizer_is_refused(
    config: StreamConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = merge_states(rank_states(config))
    monkeypatch.setattr("streamfeed.encode.objectives.build.prove", lambda *_: NOT_PROVEN)
    other = replace(config, tokenizer=str(build_bpe(tmp_path / "other", vocab_size=900)))
    with pytest.raises(StateError, match=r"tokenizer: '[0-9a-f]+' in the state"):
        load(other, state)


def test_a_corpus_in_another_folder_resumes(config: StreamConfig, tmp_path: Path) -> None:
    run = Run.start(config, 1, 2)
    whole = take(run.loaders[0], 10)
    state = run.state(4)
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = replace(config, sources=[replace(config.sources[0], uri=str(tmp_path / "moved"))])
    assert equal(take(load(moved, state), 6), whole[4:])


def test_epochs_budgets_and_topology_are_free_to_change(config: StreamConfig) -> None:
    run = Run.start(config, 1, 2)
    whole = take(run.loaders[0], 6)
    changed = replace(config, epochs=5, skip_budget=7)
    assert equal(take(load(changed, run.state(2)), 4), whole[2:])


def test_a_resume_keeps_the_states_lanes_where_the_config_leaves_them_open(tmp_path: Path, tokenizer: Any) -> None:
    write_corpus("jsonl", tmp_path / "data", texts_with_ids(60), shards=7)
    config = stream(tmp_path / "data", "jsonl", tokenizer, lanes=5)
    run = Run.start(config, 1, 2)
    whole = take(run.loaders[0], 8)
    loader = load(replace(config, lanes="auto"), run.state(3))
    assert loader.plan.lanes == 5
    assert equal(take(loader, 5), whole[3:])


def test_a_state_comes_back_from_json_as_it_was(config: StreamConfig) -> None:
    state = json.loads(json.dumps(merge_states(rank_states(config))))
    assert StreamState.from_json(state).to_json() == state


def test_a_pass_that_has_not_begun_has_every_lane_at_its_first_epoch() -> None:
    state = StreamState({"lanes": 3, "sources": [{}]}).next_pass(3).next_pass(1)
    assert state.number == 2
    assert state.lane_states(1) == {lane: LaneState.start(1, 4) for lane in range(3)}


@pytest.mark.parametrize(("before", "behind"), [(1, 2), (3, 1), (2, 2)])
def test_a_later_pass_has_the_epochs_asked_for_also_where_earlier_ones_had_others(
    before: int, behind: int, config: StreamConfig
) -> None:
    loader = InProcessLoader(replace(config, epochs=before), 4, cache_dir=CACHE)
    take(loader)
    take(loader, 2)
    resumed = load(replace(config, epochs=behind), json.loads(json.dumps(loader.state_dict())))
    take(resumed)
    assert resumed.report().tally.records == 70 * behind


def test_differences_name_leaves_that_only_one_side_has() -> None:
    assert differences({"a": 1}, {"b": [1]}) == ["a: 1 in the state, None now", "b: None in the state, [1] now"]
    assert differences({"a": [{"x": 1}]}, {"a": [{"x": 1}]}) == []


def test_a_loader_that_refused_a_state_goes_on_where_it_stood(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path / "data", "jsonl", [5] * 13, words=40)
    config = stream(tmp_path / "data", "jsonl", tokenizer, lanes="auto")
    whole = take(InProcessLoader(config, 2, cache_dir=CACHE), 6)
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    begun = take(loader, 3)
    with pytest.raises(StateError, match="seed"):
        loader.load_state_dict(InProcessLoader(replace(config, lanes=4, seed=5), 2, cache_dir=CACHE).state_dict())
    assert loader.plan.lanes == 12
    assert equal(begun + take(loader, 3), whole)


def test_shards_with_another_version_and_the_same_size_are_a_warning(
    tmp_path: Path, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    corpus(tmp_path, "jsonl", [20, 20])
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2)
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    expected = take(loader, 6)
    loader.reset()
    take(loader, 2)
    state = loader.state_dict()
    for again, warned in ((False, False), (True, True)):
        caplog.clear()
        if again:
            for path in tmp_path.glob("*.jsonl"):
                os.utime(path, ns=(1, 1))
        resumed = InProcessLoader(config, 2, cache_dir=CACHE)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == warned
        assert all("source 0" in line and "other versions" in line for line in said)
        assert equal(take(resumed, 4), expected[2:]), "and it goes on: names and sizes are the same"
    caplog.clear()
    once_more = InProcessLoader(config, 2, cache_dir=CACHE)
    once_more.load_state_dict(resumed.state_dict())
    assert not caplog.records, "what was warned of once is the run's own version from then on"
