"""Which side of a hold-out a record is on: a share of all, always the same, more of it with a larger share."""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from streamfeed import HoldOut, Source, StreamConfig
from streamfeed.errors import ConfigError
from streamfeed.plan.hold_out import Side, shards_read

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT = 100_000
SHARES = st.floats(1e-6, 1, exclude_max=True)
SEEDS = st.integers(0, 2**64 - 1)
GOLDEN = (22, 40, 333, 689, 733, 965)
"""Of 1000 records the share of 0.005, for ever: what was held out of one run is held out of the next."""
TEXTS = st.lists(st.binary(max_size=300), max_size=40)


def held_out(texts: Sequence[bytes], rule: HoldOut) -> list[bytes]:
    side = Side(HoldOut(rule.share, rule.by, rule.seed, "held_out"))
    return [bytes(text) for text in side.of([memoryview(text) for text in texts])]


@pytest.mark.parametrize("share", [0.001, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_a_share_of_many_records_is_held_out_within_four_deviations(share: float, seed: int) -> None:
    count = len(held_out([f"record {i}".encode() for i in range(COUNT)], HoldOut(share, seed=seed)))
    assert abs(count - share * COUNT) < 4 * math.sqrt(COUNT * share * (1 - share))


def test_another_seed_holds_out_another_part() -> None:
    texts = [f"record {i}".encode() for i in range(COUNT)]
    first, second = (set(held_out(texts, HoldOut(0.1, seed=seed))) for seed in (0, 1))
    assert abs(len(first & second) - 0.01 * COUNT) < 4 * math.sqrt(0.01 * 0.99 * COUNT)


def test_the_hash_is_one_that_anybody_can_compute() -> None:
    texts = [f"record {i}".encode() for i in range(1000)]
    rule = HoldOut(0.05, seed=7)
    assert held_out(texts, rule) == [one for one in texts if xxhash.xxh3_64_intdigest(one, 7) / 2**64 < 0.05]
    assert held_out(texts, HoldOut(0.005)) == [b"record %d" % i for i in GOLDEN]


@given(TEXTS, SHARES, SEEDS)
def test_every_text_is_on_one_side_alone_and_copies_are_together(texts: list[bytes], share: float, seed: int) -> None:
    views = [memoryview(text) for text in texts]
    rest, part = (Side(HoldOut(share, seed=seed, part=part)) for part in ("training", "held_out"))
    kept, held = rest.of(views), part.of(views)
    assert sorted(map(bytes, [*kept, *held])) == sorted(texts)
    assert not {bytes(one) for one in kept} & {bytes(one) for one in held}
    assert [bytes(one) for one in held] == [one for one in texts if part.has(one)]
    assert [rest.has(one) for one in texts] == [not part.has(one) for one in texts]


@given(TEXTS, SHARES, SHARES, SEEDS)
def test_a_larger_share_holds_all_of_a_smaller_one(texts: list[bytes], one: float, other: float, seed: int) -> None:
    smaller, larger = (set(held_out(texts, HoldOut(share, seed=seed))) for share in sorted((one, other)))
    assert smaller <= larger


@given(st.sets(st.text(min_size=1, max_size=20), min_size=2, max_size=30), SHARES, SEEDS)
def test_shards_are_all_in_one_part_or_the_other_or_the_share_named_instead_works(
    names: set[str], share: float, seed: int
) -> None:
    listed = sorted(names)
    digests = [xxhash.xxh3_64_intdigest(name.encode(), seed) for name in listed]
    held = [digest < HoldOut(share).limit for digest in digests]
    if all(held) or not any(held):
        words = rf"holds out {'all' if all(held) else 'none'} of the {len(listed)} shards: ([\d.e-]+) is the "
        with pytest.raises(ConfigError, match=words) as caught:
            shards_read(listed, HoldOut(share, "shard", seed), "here")
        nearest = float(str(caught.value).rpartition(" shards: ")[2].partition(" is the ")[0])
        if 0 < nearest < 1:  # a hash can be nearer to the ends than a share that is shown
            assert 0 < len(shards_read(listed, HoldOut(nearest, "shard", seed), "here")) < len(listed)
        return
    parts = [shards_read(listed, HoldOut(share, "shard", seed, part), "here") for part in ("training", "held_out")]
    assert parts[1] == [i for i, one in enumerate(held) if one]
    assert sorted(parts[0] + parts[1]) == list(range(len(listed)))


def test_shards_that_are_added_move_none_of_the_others() -> None:
    few, many = ([f"part-{i:05}.parquet" for i in range(count)] for count in (200, 300))
    rule = HoldOut(0.1, "shard", part="held_out")
    assert shards_read(many, rule, "x")[: len(shards_read(few, rule, "x"))] == shards_read(few, rule, "x")


def test_a_single_shard_and_a_share_that_splits_nothing_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"^s3://b/x is a single shard, .*; hold out by 'text' or by a field"):
        shards_read(["a.jsonl"], HoldOut(0.5, "shard"), "s3://b/x")
    names = [f"{i}.jsonl" for i in range(3)]
    least = min(xxhash.xxh3_64_intdigest(name.encode()) for name in names) / 2**64
    with pytest.raises(
        ConfigError, match=r"^x: a share of 0\.0001 holds out none of the 3 shards: 0\.\d+ is the least"
    ):
        shards_read(names, HoldOut(0.0001, "shard"), "x")
    with pytest.raises(ConfigError, match=r"a share of 0\.9999 holds out all of the 3 shards: 0\.\d+ is the most that"):
        shards_read(names, HoldOut(0.9999, "shard"), "x")
    assert len(shards_read(names, HoldOut(least + 1e-6, "shard", part="held_out"), "x")) == 1


def test_a_name_that_is_no_unicode_is_on_a_side_too() -> None:
    names = [PurePosixPath(f"a\udcff{i}").name for i in range(40)]
    parts = [shards_read(names, HoldOut(0.5, "shard", part=part), "x") for part in ("training", "held_out")]
    assert sorted(parts[0] + parts[1]) == list(range(40))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0}, "the share of a hold-out is a number between 0 and 1, got 0"),
        ({"share": 1}, "between 0 and 1, got 1"),
        ({"share": True}, "between 0 and 1, got True"),
        ({"share": float("nan")}, "between 0 and 1, got nan"),
        ({"share": "1%"}, "between 0 and 1, got '1%'"),
        ({"share": 1e-30}, "between 0 and 1, got 1e-30"),
        ({"share": 0.1, "by": "url"}, "is by 'text', 'shard' or 'key:' and a field's name, got 'url'"),
        ({"share": 0.1, "by": "key:"}, "key '' has an empty part"),
        ({"share": 0.1, "by": "key:a..b"}, r"key 'a\.\.b' has an empty part"),
        ({"share": 0.1, "seed": -1}, r"seed of a hold-out is a whole number in \[0, 2\*\*64\), got -1"),
        ({"share": 0.1, "part": "test"}, "part must be one of training, held_out"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HoldOut(**settings)


def test_the_config_of_the_part_differs_in_what_makes_one_pass_in_listed_order_alone() -> None:
    config = StreamConfig([Source("a")], "t", 64, packing="none", seed=3, lanes=7, epochs=2, group_by_length=True)
    with pytest.raises(ConfigError, match=r"nothing is held out: give the stream a hold_out, as in HoldOut\(0\.01\)"):
        config.held_out()
    with pytest.raises(ConfigError, match=r"hold_out takes an object, as in HoldOut\(0\.01\), got 0\.01"):
        StreamConfig([Source("a")], "t", hold_out=0.01)  # type: ignore[arg-type]
    held = StreamConfig([Source("a")], "t", 64, "none", seed=3, lanes=7, group_by_length=True, hold_out=HoldOut(0.1))
    assert held.held_out() == StreamConfig(
        [Source("a")],
        "t",
        64,
        packing="none",
        seed=3,
        epochs=1,
        shuffle_buffer=0,
        hold_out=HoldOut(0.1, part="held_out"),
    )
    assert held.held_out().held_out() == held.held_out()
