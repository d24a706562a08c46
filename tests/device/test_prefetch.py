"""The prefetcher: the loader's batches, ahead of time, each in its own memory and its own place."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamfeed import DevicePrefetcher, StreamConfig
from streamfeed.errors import ConfigError, CorruptShardError
from tests.device.fake_engine import LateEngine
from tests.device.streams import contents, plain, prefetching
from tests.streams import CACHE, Batches, InProcessLoader, corpus, equal, stream, take

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any, one_engine: None) -> StreamConfig:
    corpus(tmp_path, "jsonl", [30, 20, 40, 25], words=20)
    return stream(tmp_path, "jsonl", tokenizer)


@pytest.fixture
def reference(config: StreamConfig) -> Batches:
    return take(plain(config), 40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(depth=st.integers(1, 4), chance=st.floats(0, 1), workers=st.sampled_from([0, 2]))
def test_sixteen_batches_that_are_kept_hold_what_the_loader_gives_however_late_copies_are(
    config: StreamConfig, reference: Batches, depth: int, chance: float, workers: int
) -> None:
    prefetcher, engine = prefetching(config, workers=workers, depth=depth, chance=chance)
    pieces = len(engine.allocated)
    kept: list[Any] = []
    found: Batches = []
    for batch in islice(prefetcher, 40):
        kept.append(batch)
        if len(kept) == 16:
            found += contents(kept, engine)
            kept = []
    found += contents(kept, engine)
    assert equal(found, reference)
    assert len(engine.allocated) == pieces, "nothing is allocated while it runs"
    assert engine.begun <= 40 + depth


def test_it_takes_up_to_depth_batches_ahead_and_only_those_that_are_ready(config: StreamConfig) -> None:
    for depth in (1, 2, 4):
        prefetcher, engine = prefetching(config, depth=depth, chance=1.0)
        for number, _ in enumerate(islice(prefetcher, 10), 1):
            assert engine.begun == number + depth
            assert prefetcher.batches == number
    engine = LateEngine(1.0)
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    loader.ready = lambda: False  # type: ignore[method-assign]
    for number, _ in enumerate(islice(DevicePrefetcher(loader, "cpu", engine=engine), 10), 1):
        assert engine.begun == number


def test_looking_ahead_does_not_wait_for_a_slot(config: StreamConfig) -> None:
    prefetcher, engine = prefetching(config, depth=2)
    next(iter(prefetcher))
    assert (engine.begun, engine.waited) == (3, 0)
    next(iter(prefetcher))
    assert (engine.begun, engine.waited) == (3, 0), "all three slots are still being copied from"


def test_on_the_cpu_it_hands_on_the_loaders_own_batches(config: StreamConfig, reference: Batches) -> None:
    loader = plain(config)
    handed: list[Any] = []
    loader.__class__ = type("Noting", (InProcessLoader,), {"_next": noting(handed)})
    prefetcher = DevicePrefetcher(loader, "cpu")
    batches = list(islice(prefetcher, 5))
    assert [id(batch) for batch in batches] == [id(batch) for batch in handed]
    assert equal([{name: column.numpy() for name, column in batch.items()} for batch in batches], reference[:5])
    assert loader.batches == prefetcher.batches == 5


def noting(handed: list[Any]) -> Callable[[InProcessLoader], Any]:
    def following(self: InProcessLoader) -> Any:
        batch = InProcessLoader._next(self)
        handed.append(batch)
        return batch

    return following


def test_other_devices_get_copies_as_they_come(config: StreamConfig) -> None:
    prefetcher = DevicePrefetcher(plain(config), "meta")
    batch = next(iter(prefetcher))
    assert {column.device.type for column in batch.values()} == {"meta"}
    assert batch["input_ids"].shape == (2, 32)
    assert prefetcher.loader.batches == 1


def test_the_settings_of_the_loader_show_through(config: StreamConfig) -> None:
    loader = plain(config)
    prefetcher = DevicePrefetcher(loader, "cpu")
    for name in (
        "config", "batch_size", "num_workers", "kept_states", "rank", "world_size", "joined", "tokenizer", "plan",
        "verdict",
    ):  # fmt: skip
        assert getattr(prefetcher, name) is getattr(loader, name), name
    assert prefetcher.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("depth", "kept", "message"),
    [(0, 256, "depth must be at least 1"), (5, 4, "depth 5 is more than the 4 last states .* kept_states=5")],
)
def test_a_depth_that_cannot_be_is_refused(config: StreamConfig, depth: int, kept: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DevicePrefetcher(plain(config, kept_states=kept), "cpu", depth=depth, engine=LateEngine())


def test_what_was_measured_is_that_of_the_batch_handed_out(config: StreamConfig, reference: Batches) -> None:
    loader = prefetching(config)[0].loader
    prefetcher = DevicePrefetcher(
        loader, "cpu", depth=3, engine=LateEngine(0.5), measure=lambda batch: int(batch["labels"].sum())
    )
    assert prefetcher.measured is None
    for batch in reference:
        next(iter(prefetcher))
        assert prefetcher.measured == int(batch["labels"].sum())


def hand_out(prefetcher: DevicePrefetcher, kept: list[Any], most: int = 40) -> None:
    """Hand out batches into ``kept``, which holds what came in front of an error, until it has ``most``."""
    while len(kept) < most and (batch := next(iter(prefetcher), None)) is not None:
        kept.append(batch)


def failing(loader: Any, at: int, error: BaseException) -> None:
    """Make ``loader`` raise in the place of batch ``at``, counted from 0, once."""
    assembled = loader._assembled
    done: list[int] = []

    def fails() -> Any:
        if loader.batches == at and not done:
            done.append(at)
            raise error
        return assembled()

    loader._assembled = fails


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("at", [0, 1, 2, 7, 11])
def test_an_error_comes_behind_the_batches_in_front_of_it_and_nothing_is_lost(
    config: StreamConfig, reference: Batches, depth: int, at: int
) -> None:
    prefetcher, engine = prefetching(config, depth=depth)
    failing(prefetcher.loader, at, CorruptShardError("a.jsonl", "byte 4", "is damaged"))
    kept: list[Any] = []
    with pytest.raises(CorruptShardError, match="byte 4"):
        hand_out(prefetcher, kept)
    assert len(kept) == at == prefetcher.batches
    assert prefetcher.state_dict() == prefetcher.loader.state_dict()
    kept += islice(prefetcher, 40 - at)
    assert equal(contents(kept, engine), reference)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("at", [0, 1, 7])
def test_an_interrupt_is_raised_at_once_and_nothing_is_lost(
    config: StreamConfig, reference: Batches, depth: int, at: int
) -> None:
    prefetcher, engine = prefetching(config, depth=depth, chance=1.0)
    failing(prefetcher.loader, at, KeyboardInterrupt())
    kept: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        hand_out(prefetcher, kept)
    assert len(kept) == max(0, at - depth), "while it looked ahead"
    state = prefetcher.state_dict()
    kept += islice(prefetcher, 40 - len(kept))
    assert equal(contents(kept, engine), reference)
    resumed = plain(config)
    resumed.load_state_dict(state)
    assert equal(take(resumed, 3), reference[max(0, at - depth) :][:3])


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_a_copy_that_fails_is_raised_in_its_place_and_tried_again(
    config: StreamConfig, reference: Batches, depth: int, at: int
) -> None:
    """Its device was full ahead of time: that may have passed when its turn comes."""
    prefetcher, engine = prefetching(config, depth=depth, chance=0.5)
    engine.fail_at = (at,)
    kept: list[Any] = []
    for _ in range(2):
        try:
            hand_out(prefetcher, kept)
        except MemoryError:
            assert len(kept) == at - 1 == prefetcher.batches == 0, "only of the first batch nothing is ahead"
    assert equal(contents(kept, engine), reference)


def test_a_copy_that_fails_twice_is_raised_behind_the_batches_in_front_of_it(
    config: StreamConfig, reference: Batches
) -> None:
    prefetcher, engine = prefetching(config, depth=2, chance=1.0)
    engine.fail_at = (4, 5, 6, 7, 8, 9)
    kept: list[Any] = []
    failures = 0
    while len(kept) < 40:
        try:
            kept.append(next(iter(prefetcher)))
        except MemoryError:
            failures += 1
            assert len(kept) >= 3
            assert prefetcher.batches == len(kept)
    assert failures
    assert equal(contents(kept, engine), reference)


def test_closed_it_goes_on_with_what_was_taken_and_the_batch_behind_it(
    config: StreamConfig, reference: Batches
) -> None:
    prefetcher, engine = prefetching(config, depth=3)
    with prefetcher as entered:
        assert entered is prefetcher
        kept = list(islice(prefetcher, 5))
    assert engine.settled == 1
    assert not engine.queue, "no copy reads the host's memory any more"
    assert prefetcher.loader._turns is None
    assert prefetcher.batches == 5
    kept += islice(prefetcher, 35)
    assert equal(contents(kept, engine), reference)


def test_a_loader_that_has_begun_is_taken_over_where_it_stands(config: StreamConfig, reference: Batches) -> None:
    loader = plain(config)
    take(loader, 3)
    prefetcher, engine = DevicePrefetcher(loader, "cpu", engine=(late := LateEngine(0.3))), late
    assert prefetcher.batches == 3
    kept = list(islice(prefetcher, 37))
    assert equal(contents(kept, engine), reference[3:])


def test_loading_and_starting_over_drop_what_was_taken(config: StreamConfig, reference: Batches) -> None:
    prefetcher, engine = prefetching(config, depth=4)
    list(islice(prefetcher, 6))
    state = prefetcher.state_dict()
    list(islice(prefetcher, 5))
    prefetcher.load_state_dict(state)
    assert (prefetcher.batches, prefetcher.state_dict()) == (0, state)
    assert equal(contents(list(islice(prefetcher, 10)), engine), reference[6:16])
    prefetcher.reset()
    assert prefetcher.batches == 0
    assert equal(contents(list(islice(prefetcher, 10)), engine), reference[:10])


def test_a_state_that_is_refused_changes_nothing(config: StreamConfig, reference: Batches) -> None:
    prefetcher, engine = prefetching(config, depth=2)
    kept = list(islice(prefetcher, 4))
    with pytest.raises(ValueError, match="version"):
        prefetcher.load_state_dict({"version": 99})
    kept += islice(prefetcher, 36)
    assert equal(contents(kept, engine), reference)


def test_copies_are_counted_as_time_waited(config: StreamConfig) -> None:
    prefetcher, _ = prefetching(config, depth=2)
    list(islice(prefetcher, 5))
    copied = prefetcher.loader.flow().trainer["copy"]
    assert copied.items >= 5
    assert copied.bytes == copied.items * 3 * 8 * 2 * config.seq_len
    assert 0 < copied.busy_ns < prefetcher.loader.flow().trainer["wait"].busy_ns
