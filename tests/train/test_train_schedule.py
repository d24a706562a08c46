"""The length of a run and the learning rate on the way, in steps, labels and epochs."""

from __future__ import annotations

from typing import Any

import pytest

from streamfeed.errors import ConfigError
from streamfeed.train.config import DataConfig, RunConfig, TrainConfig
from streamfeed.train.count import count_steps
from streamfeed.train.schedule import DEFAULT_STEPS, Length, learning_rate, must_count
from streamfeed.train.snapshot import Position
from tests.train.fake_stream import FakeLoader


def options(**changes: Any) -> TrainConfig:
    return TrainConfig(lr=1.0, min_lr=0.1, warmup_steps=4, **changes)


def rates(length: Length, positions: list[Position], **changes: Any) -> list[float]:
    return [learning_rate(position, options(**changes), length) for position in positions]


def test_the_rate_warms_up_linearly_and_falls_as_a_cosine_over_steps() -> None:
    found = rates(Length(steps=12), [Position(step=step) for step in range(13)])
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[4] == 1.0
    assert found[8] == pytest.approx(0.55)
    assert found[12] == pytest.approx(0.1)
    assert found[4:] == sorted(found[4:], reverse=True)


def test_over_labels_it_falls_with_those_behind_the_warm_up() -> None:
    positions = [Position(step=4 + step, tokens=400 + 100 * step, warm_tokens=400) for step in range(9)]
    found = rates(Length(tokens=1200), positions)
    assert found == pytest.approx(rates(Length(steps=12), [Position(step=4 + step) for step in range(9)]))
    uneven = rates(Length(tokens=1200), [Position(step=5, tokens=1000, warm_tokens=400)])
    assert uneven == rates(Length(steps=12), [Position(step=10)])


def test_of_two_bounds_the_nearer_one_counts() -> None:
    position = Position(step=8, tokens=1100, warm_tokens=400)
    both = rates(Length(steps=12, tokens=1200), [position])
    assert both == rates(Length(tokens=1200), [position])
    assert both < rates(Length(steps=12), [position])
    assert rates(Length(steps=12, of_data=8), [position]) == pytest.approx([0.1])


def test_a_constant_rate_stays_behind_the_warm_up() -> None:
    found = rates(Length(steps=12), [Position(step=step) for step in range(13)], lr_schedule="constant")
    assert found == [0.25, 0.5, 0.75] + [1.0] * 10


def test_without_warm_up_the_first_step_has_the_peak() -> None:
    assert learning_rate(Position(), TrainConfig(lr=2.0, warmup_steps=0), Length(steps=5)) == 2.0


def test_a_run_without_bounds_has_1000_steps_and_one_with_any_has_none_of_its_own() -> None:
    assert Length.of(RunConfig(), Position()).steps == DEFAULT_STEPS == 1000
    assert Length.of(RunConfig(train=TrainConfig(max_tokens=5)), Position()).steps is None
    assert Length.of(RunConfig(data=DataConfig(epochs=1)), Position(counted=7, global_batch_size=1)).last_step == 7
    assert Length.of(RunConfig(data=DataConfig(epochs=1), train=TrainConfig(max_steps=5)), Position()).last_step == 5


def test_rows_that_are_stepped_over_are_no_steps_of_the_data() -> None:
    config = RunConfig(data=DataConfig(epochs=1), train=TrainConfig(skip_rows=16))
    assert Length.of(config, Position(counted=56, global_batch_size=8)).last_step == 5
    assert Length.of(config, Position(counted=20, global_batch_size=8)).last_step == 1


def test_what_is_reached_first_ends_the_run() -> None:
    length = Length(steps=10, tokens=500)
    assert length.reached(Position(step=9, tokens=499)) == ""
    assert length.reached(Position(step=10, tokens=0)) == "train.max_steps"
    assert length.reached(Position(step=3, tokens=500)) == "train.max_tokens"
    assert Length().reached(Position(step=10**9)) == ""


@pytest.mark.parametrize(
    ("epochs", "train", "counts"),
    [
        (None, {}, False),
        (2, {}, True),
        (2, {"max_steps": 5}, False),
        (2, {"max_tokens": 5}, True),
        (2, {"lr_schedule": "constant"}, False),
    ],
)
def test_data_are_counted_only_where_the_rate_depends_on_their_end(
    epochs: int | None, train: dict[str, Any], counts: bool
) -> None:
    assert must_count(RunConfig(data=DataConfig(epochs=epochs), train=TrainConfig(**train))) is counts


@pytest.mark.parametrize("behind", [Position(step=1, counted_epochs=1), Position(skipped_rows=8, counted_epochs=1)])
def test_a_resume_from_behind_the_beginning_is_not_counted_again_which_would_go_back_there(behind: Position) -> None:
    config = RunConfig(data=DataConfig(epochs=2, uri="rows", tokenizer="fake"))
    loader: Any = FakeLoader(config.stream(), 2)
    loader.load_state_dict({"rows": 8})
    with pytest.raises(ConfigError, match=r"data\.epochs is 2, and the steps of the run resumed were counted for 1"):
        count_steps(config, loader, behind, lambda _: None)
    assert loader.state_dict() == {"rows": 8}
