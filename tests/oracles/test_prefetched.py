"""Prefetched streams: batches and states are those of the loader alone, whatever is taken ahead, on all ranks."""

from __future__ import annotations

import json
import random
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import DevicePrefetcher, Source, StreamConfig
from streamfeed.errors import CorruptShardError, RankError
from streamfeed.loader.job import InProcess
from streamfeed.objectives import Chat, Classification, Lm, Mlm, Objective
from tests.corpora import write_records
from tests.device.fake_engine import LateEngine
from tests.device.streams import contents, plain, prefetching
from tests.oracles.test_finite_passes import loader_on, ranks_are_threads, replace_next  # noqa: F401 - a fixture
from tests.oracles.test_objectives import TEMPLATE, records
from tests.streams import Batches, corpus, equal, global_rows, stream, take
from tests.threads import ThreadRanks, on_ranks
from tests.tokenizers_for_tests import build_bert

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"DOCUMENTS": 5, "ROWS": 3, "TOKENS": 0}.items():
        monkeypatch.setattr(f"streamfeed.lane.best_fit.WINDOW_{name}", size)


def check_every_state(config: StreamConfig, most: int | None, *, depth: int, workers: int, **options: Any) -> None:
    """Behind every batch that a prefetcher hands out, a fresh loader goes on from its state to the bit."""
    reference = take(plain(config, **options), most)
    prefetcher, engine = prefetching(config, workers=workers, depth=depth, chance=0.7, **options)
    kept: list[Any] = []
    states = [json.dumps(prefetcher.state_dict())]
    ahead = 0
    for batch in islice(prefetcher, most):
        kept.append(batch)
        states.append(json.dumps(prefetcher.state_dict()))
        assert prefetcher.state_dict(len(kept)) == json.loads(states[-1])
        ahead = max(ahead, prefetcher.loader.batches - len(kept))
    assert ahead == depth, "the test is of what looks ahead"
    assert equal(contents(kept, engine), reference)
    for done, state in enumerate(states):
        following = 2 if done % 5 else 6
        again = plain(config, **options)
        again.load_state_dict(json.loads(state))
        assert equal(take(again, min(following, len(reference) - done)), reference[done : done + following]), done
        prefetched, late = prefetching(config, depth=depth, chance=0.7, **options)
        prefetched.load_state_dict(json.loads(state))
        assert prefetched.state_dict() == json.loads(state), "right after loading"
        some = list(islice(prefetched, min(2, len(reference) - done)))
        assert equal(contents(some, late), reference[done : done + 2]), done


@pytest.mark.parametrize(
    ("kind", "packing", "depth", "workers"),
    [
        ("jsonl", "concat", 1, 0),
        ("jsonl", "best_fit", 2, 2),
        ("jsonl.gz", "none", 3, 0),
        ("parquet", "concat", 4, 2),
        ("tar", "best_fit", 1, 2),
        ("jsonl.zst", "none", 2, 0),
    ],
)
def test_behind_every_batch_the_state_is_that_of_the_batch_handed_out(
    kind: str, packing: Any, depth: int, workers: int, tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path, kind, [20, 14, 25, 9], words=20)
    check_every_state(stream(tmp_path, kind, tokenizer, packing=packing), 24, depth=depth, workers=workers)


@pytest.mark.parametrize("objective", ["classes", "masked", "chat"])
def test_so_it_is_for_columns_that_are_made_for_every_batch(objective: str, tmp_path: Path, tokenizer: Any) -> None:
    write_records("jsonl", tmp_path / "records/a.jsonl", records(40))
    kinds: dict[str, tuple[Objective, dict[str, Any]]] = {
        "classes": (Classification(text_pair="pair", names=("no", "yes", "maybe")), {"packing": "none"}),
        "masked": (Mlm(), {"packing": "none"}),
        "chat": (Chat(template=TEMPLATE), {"packing": "best_fit"}),
    }
    made, packing = kinds[objective]
    named = tokenizer if objective == "chat" else str(build_bert(tmp_path / "bert"))
    config = StreamConfig(
        [Source(str(tmp_path / "records"))],
        tokenizer=named,
        seq_len=64,
        shuffle_buffer=24,
        lanes=4,
        objective=made,
        **packing,
    )
    options = {"columns": ["document_ids", "cu_seqlens"]} if objective == "chat" else {"pad_to_multiple_of": 8}
    check_every_state(config, 16, depth=2, workers=2, **options)


@pytest.mark.parametrize("depth", [1, 3])
def test_at_the_end_of_a_pass_and_behind_it_the_state_is_the_loaders(
    depth: int, tmp_path: Path, tokenizer: Any
) -> None:
    """What looks ahead meets the end of the pass before it is handed out."""
    corpus(tmp_path, "jsonl", [9, 5], words=20)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=2)
    check_every_state(config, None, depth=depth, workers=0)
    alone = plain(config)
    prefetcher, engine = prefetching(config, depth=depth, chance=0.5)
    for number in range(3):
        one, other = iter(alone), iter(prefetcher)
        handed = 0
        while (batch := next(one, None)) is not None:
            assert equal(contents([next(other)], engine), [{name: column.numpy() for name, column in batch.items()}])
            handed += 1
            found, expected = prefetcher.state_dict(), alone.state_dict()
            assert [found[name] for name in ("pass", "rows", "ended")] == [number, 2 * handed, False]
            assert {name: found[name] for name in found if name != "lanes"} == {
                name: expected[name] for name in expected if name != "lanes"
            }
        assert next(other, None) is None
        assert prefetcher.state_dict() == alone.state_dict()
        assert prefetcher.state_dict()["ended"]
        assert prefetcher.batches == alone.batches


def messages_arrive_by_chance(monkeypatch: pytest.MonkeyPatch, chance: float) -> None:
    """Let hosts in this process have messages at hand as processes would, on each rank at other moments."""
    draw = random.Random(int(chance * 100))
    monkeypatch.setattr(InProcess, "ready", lambda self: draw.random() < chance)


def training(
    own: ThreadRanks, prefetcher: DevicePrefetcher, kept: list[Any], most: int | None = None
) -> list[dict[str, Any]]:
    """Take batches as a trainer does, with a collective for each: a rank that waits for others ahead of it hangs."""
    batches = iter(prefetcher)
    states: list[dict[str, Any]] = []
    while most is None or len(kept) < most:
        batch = next(batches, None)
        handed = own.sum([batch is not None])[0]
        assert handed in {0, own.size}, "all ranks end together"
        if batch is None:
            return states
        kept.append(batch)
        if len(kept) % 5 == 0:
            states.append(prefetcher.state_dict())
    return states


@pytest.mark.parametrize("chance", [0.2, 0.8])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_look_ahead_end_a_pass_together_and_never_wait_for_each_other_out_of_turn(
    ranks: int, chance: float, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path, "jsonl", [40, 3, 25, 60], words=20)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=4)
    messages_arrive_by_chance(monkeypatch, chance)

    def work(own: ThreadRanks) -> tuple[list[Batches], list[Any], int]:
        engine = LateEngine(chance, own.number)
        prefetcher = DevicePrefetcher(
            loader_on(own, config, 1, own.number % 3), "cpu", depth=1 + own.number, engine=engine
        )
        passes: list[Batches] = []
        states: list[Any] = []
        ahead = 0
        take_one = prefetcher.loader._next

        def noting() -> Any:
            nonlocal ahead
            ahead = max(ahead, prefetcher.loader.batches + 1 - prefetcher.batches)
            return take_one()

        prefetcher.loader._next = noting  # type: ignore[method-assign]
        for _ in range(2):
            kept: list[Any] = []
            states += training(own, prefetcher, kept)
            assert prefetcher.state_dict()["ended"]
            passes.append(contents(kept, engine))
        return passes, states, ahead

    done = on_ranks(ranks, work)
    monkeypatch.undo()
    assert max(ahead for _, _, ahead in done) > 1, "the test is of what looks ahead"
    one = plain(config, 1)
    for number in range(2):
        reference = global_rows([take(one)])
        per_rank = [passes[number] for passes, _, _ in done]
        rows = global_rows(per_rank)
        assert {g: rows[g] for g in reference} == reference
        assert {len(batches) for batches in per_rank} == {-(-len(reference) // ranks)}
    whole = global_rows([take(plain(config, 1))])
    for state in done[0][1][:8]:
        again = plain(config, 1)
        again.load_state_dict(json.loads(json.dumps(state)))
        rows = global_rows([take(again, 6)], after=state["rows"])
        assert rows == {g: whole[g] for g in rows}


def test_the_other_ranks_hear_in_its_place_of_one_that_failed_while_it_looked_ahead(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path, "parquet", [40, 40], words=60)
    config = stream(tmp_path, "parquet", tokenizer, epochs=1, lanes=2, shuffle_buffer=4)
    messages_arrive_by_chance(monkeypatch, 0.9)

    def work(own: ThreadRanks) -> tuple[type[BaseException], int]:
        prefetcher = DevicePrefetcher(loader_on(own, config, 1, 0), "cpu", depth=3, engine=LateEngine(1.0))
        kept: list[Any] = []
        training(own, prefetcher, kept, 5)
        if own.number == 1:
            loader: Any = prefetcher.loader
            replace_next(loader._turns)
            loader._turns._reader.ready = lambda **_: True
        batches = iter(prefetcher)
        while True:
            try:
                kept.append(next(batches))
            except (RankError, CorruptShardError) as error:
                return type(error), len(kept)

    done = on_ranks(3, work)
    assert [kind for kind, _ in done] == [RankError, CorruptShardError, RankError]
    assert all(count >= done[1][1] for _, count in done), "not before the batch that failed"


@pytest.mark.processes
def test_of_real_workers_what_has_arrived_is_taken_ahead(tmp_path: Path, tokenizer: Any) -> None:
    from streamfeed import StreamLoader

    corpus(tmp_path, "jsonl", [300, 300], words=60)
    config = stream(tmp_path, "jsonl", tokenizer, objective=Lm())
    reference = take(plain(config, 4), 60)
    engine = LateEngine(1.0)
    with DevicePrefetcher(StreamLoader(config, 4, num_workers=2), "cpu", depth=3, engine=engine) as prefetcher:
        kept = list(islice(prefetcher, 60))
        assert engine.begun > 60, "workers are ahead"
        assert engine.waited == 0
        state = prefetcher.state_dict()
    assert equal(contents(kept, engine), reference)
    again = plain(config, 4)
    again.load_state_dict(state)
    alone = plain(config, 4)
    take(alone, 60)
    assert equal(take(again, 5), take(alone, 5))
