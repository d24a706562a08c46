"""Bad input: an error that names shard, place and cause; or skipped, counted and bounded, and nothing else is lost."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfeed import Source, StreamConfig
from streamfeed.errors import BudgetError, FieldError, ReadError, RecordError
from tests.corpora import KINDS, id_of, texts_with_ids, write_shard
from tests.damages import DAMAGED, DAMAGES, GOOD, LANES, Damage, corpus, parquet_of
from tests.streams import CACHE, Batches, InProcessLoader, equal, lane_tokens, stream, take

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.stats import Tally

pytestmark = pytest.mark.usefixtures("one_engine")


def read(config: StreamConfig, tokenizer: Any) -> tuple[Counter[int], Tally]:
    """Read a finite pass; return how often each record came, and the tally."""
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    found: Counter[int] = Counter()
    for tokens in lane_tokens([take(loader)], LANES):
        texts = tokenizer.decode(tokens).split(tokenizer.eos_token)
        found.update(id_of(text) for text in texts if text)
    return found, loader.report().tally


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


@pytest.mark.parametrize("epochs", [None, 1])
def test_bad_input_is_an_error_that_names_shard_place_and_cause(
    damage: Damage, epochs: int | None, tmp_path: Path, tokenizer: Any
) -> None:
    bad = corpus(tmp_path, damage.kind, damage.write)
    loader = InProcessLoader(bad.config(tokenizer, epochs=epochs), 2, cache_dir=CACHE)
    with pytest.raises(damage.error, match=damage.says) as caught:
        take(loader, 1000)
    assert caught.value.shard == str(bad.damaged)
    assert caught.value.where
    assert caught.value.cause


def test_skipped_is_what_is_bad_alone_and_all_of_it_is_counted(damage: Damage, tmp_path: Path, tokenizer: Any) -> None:
    bad = corpus(tmp_path, damage.kind, damage.write)
    found, tally = read(bad.config(tokenizer, on_error="skip"), tokenizer)
    assert set(found.values()) == {1}
    inside = {index for index in found if GOOD <= index < GOOD + DAMAGED}
    assert set(found) - inside == {*range(GOOD), *range(GOOD + DAMAGED, 2 * GOOD + DAMAGED)}
    assert (tally.skipped, tally.broken_shards) == (damage.bad, int(damage.broken))
    assert tally.records == len(found) + damage.bad
    if damage.broken:
        assert inside == set(range(GOOD, GOOD + len(inside))), "all records before the damage"
        assert len(inside) < DAMAGED
    else:
        assert len(inside) >= DAMAGED - damage.bad - 3  # a truncated plain file has lost its last lines for good


def test_skipping_is_bounded_by_the_budget(damage: Damage, tmp_path: Path, tokenizer: Any) -> None:
    bad = corpus(tmp_path, damage.kind, damage.write)
    worth = damage.bad + damage.broken
    allowed = bad.config(tokenizer, on_error="skip", skip_budget=worth)
    read(allowed, tokenizer)
    with pytest.raises(BudgetError, match=f"skip_budget={worth - 1}"):
        read(replace(allowed, skip_budget=worth - 1), tokenizer)


@pytest.mark.parametrize(
    "name", [name for name in DAMAGES if "truncated" in name or "JSON" in name or "parquet" in name]
)
def test_a_resume_with_skips_is_exact_and_counts_nothing_twice(name: str, tmp_path: Path, tokenizer: Any) -> None:
    bad = corpus(tmp_path, DAMAGES[name].kind, DAMAGES[name].write)
    config = bad.config(tokenizer, on_error="skip", shuffle_buffer=8)
    loader = InProcessLoader(config, 2, cache_dir=CACHE)
    states = [loader.state_dict()]
    whole: Batches = []
    while batch := take(loader, 1):
        whole += batch
        states.append(loader.state_dict())
    final = loader.report().tally
    assert len(whole) > 10
    for taken, state in enumerate(states[:-1]):
        resumed = InProcessLoader(config, 2, cache_dir=CACHE)
        resumed.load_state_dict(json.loads(json.dumps(state)))
        if taken % 7:
            assert equal(take(resumed, 5), whole[taken : taken + 5]), taken
        else:
            assert equal(take(resumed), whole[taken:]), taken
            assert resumed.report().tally == final, taken


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lines"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_field_that_no_record_has_is_an_error_that_lists_those_present(
    kind: str, on_error: str, tmp_path: Path, tokenizer: Any
) -> None:
    write_shard(kind, tmp_path / f"a.{kind}", texts_with_ids(30))
    config = replace(
        stream(tmp_path, kind, tokenizer, on_error=on_error, skip_budget=10),
        sources=[Source(str(tmp_path), text="json.body" if kind.startswith("tar") else "body")],
    )
    with pytest.raises((RecordError, FieldError) if on_error == "raise" else (BudgetError, FieldError)) as caught:
        take(InProcessLoader(config, 2, cache_dir=CACHE), 1)
    if not isinstance(caught.value, BudgetError):
        assert "body" in str(caught.value)
        assert "present: id, text" in str(caught.value)
        assert str(tmp_path / f"a.{kind}") in str(caught.value)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("column", ["int64", "list"])
def test_a_parquet_column_that_cannot_hold_text_is_an_error_also_when_skipping(
    on_error: str, column: str, tmp_path: Path, tokenizer: Any
) -> None:
    values: list[Any] = [1] * 9 if column == "int64" else [["a"]] * 9
    bad = corpus(tmp_path, "parquet", parquet_of(lambda texts: pa.array((values * len(texts))[: len(texts)])))
    with pytest.raises(FieldError, match=f"'text'.*(?i:{column})") as caught:
        take(InProcessLoader(bad.config(tokenizer, on_error=on_error), 2, cache_dir=CACHE))
    assert caught.value.shard == str(bad.damaged)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("happens", ["removed", "grown", "cut"])
def test_a_shard_changed_since_the_run_planned_is_never_fewer_records(
    kind: str, on_error: str, happens: str, tmp_path: Path, tokenizer: Any
) -> None:
    good = corpus(tmp_path, kind, lambda path, texts: write_shard(kind, path, texts))
    loader = InProcessLoader(good.config(tokenizer, on_error=on_error), 2, cache_dir=CACHE)
    content, stat = good.damaged.read_bytes(), good.damaged.stat()
    good.damaged.unlink()
    if happens != "removed":
        good.damaged.write_bytes(content + content if happens == "grown" else content[:-20])
    with pytest.raises(ReadError) as caught:
        take(loader)
    assert caught.value.shard == str(good.damaged)
    good.damaged.write_bytes(content)
    os.utime(good.damaged, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert take(loader), "the loader goes on when the shard is back"


@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_budget_also_bounds_what_is_skipped_behind_the_last_row(
    batch_size: int, tmp_path: Path, tokenizer: Any
) -> None:
    for shard in range(4):
        (tmp_path / f"{shard}.jsonl").write_bytes(b'{"text": "good"}\nbad\nbad\n')
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, on_error="skip", skip_budget=8)
    assert take(InProcessLoader(config, batch_size, cache_dir=CACHE))
    with pytest.raises(BudgetError, match="8 skipped: more than skip_budget=7"):
        take(InProcessLoader(replace(config, skip_budget=7), batch_size, cache_dir=CACHE))
