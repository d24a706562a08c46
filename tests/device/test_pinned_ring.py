"""The ring of pinned slots: none is filled again before its copy has arrived, and none is made anew."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.device.ring import PinnedRing, Stage
from streamfeed.loader.assembly import group_memory
from tests.device.fake_engine import LateEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.loader.memory import Batch, BatchMemory

ROWS, LENGTH = 2, 3


class Lender:
    """A loader as far as the ring knows one."""

    memory: BatchMemory

    def use_memory(self, make: Callable[[tuple[int, ...]], torch.Tensor], pieces: int) -> None:
        self.memory = group_memory(ROWS, LENGTH, make, pieces)


def lent(ring: PinnedRing) -> BatchMemory:
    lender = Lender()
    ring.lend_to(lender)  # type: ignore[arg-type]
    return lender.memory


def fill(batch: Batch, number: int) -> Batch:
    for index, column in enumerate(batch.values()):
        column.fill_(10 * number + index)
    return batch


def right(batch: Batch, number: int) -> bool:
    return all(bool((column == 10 * number + index).all()) for index, column in enumerate(batch.values()))


@given(st.integers(1, 5), st.integers(1, 8), st.floats(0, 1), st.integers(0, 99))
def test_every_copy_reads_what_its_slot_held_also_where_batches_share_one(
    slots: int, group: int, chance: float, seed: int
) -> None:
    engine = LateEngine(chance, seed)
    ring = PinnedRing(engine, slots)
    memory = lent(ring)
    pieces = len(engine.allocated)
    kept, number = [], 0
    for _ in range(20):
        ring.wait()
        batches = memory.take().batches[:group]
        for index, batch in enumerate(batches):
            fill(batch, number + index)
        while batches:
            kept.append(ring.hand_out(ring.begin(batches.pop(0))))
            number += 1
            assert len(engine.queue) <= slots
        del batch
    ring.settle()
    assert all(right(batch, n) for n, batch in enumerate(kept))
    assert len(engine.allocated) == pieces, "all memory is allocated at the start"
    assert engine.staged == 0


@given(st.integers(1, 4), st.floats(0, 1), st.integers(0, 99), st.lists(st.integers(1, 40), min_size=10, max_size=30))
def test_columns_made_for_a_batch_go_through_stages_that_are_taken_again(
    slots: int, chance: float, seed: int, widths: list[int]
) -> None:
    engine = LateEngine(chance, seed)
    ring = PinnedRing(engine, slots)
    memory = lent(ring)
    kept = []
    for number, width in enumerate(widths):
        ring.wait()
        plane = fill(memory.take().batches[0], number)
        loose = {
            "document_ids": torch.full((ROWS, width), number, dtype=torch.int32),
            "max_seqlen": torch.tensor(number, dtype=torch.int32),
            "mask": torch.full((width,), number % 2 == 0),
        }
        kept.append(ring.hand_out(ring.begin({**plane, **loose})))
        del plane, loose
    ring.settle()
    for number, batch in enumerate(kept):
        planes = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
        assert right(planes, number)
        assert (batch["document_ids"].shape, batch["max_seqlen"].shape) == ((ROWS, widths[number]), ())
        assert batch["document_ids"].dtype == torch.int32
        assert bool((batch["document_ids"] == number).all())
        assert int(batch["max_seqlen"]) == number
        assert bool((batch["mask"] == (number % 2 == 0)).all())
    assert engine.staged <= slots * 2 * 1024, "a stage for each slot, of powers of two up to the widest batch"


def test_a_slot_is_free_only_after_its_copy_and_asking_does_not_wait() -> None:
    engine = LateEngine()
    ring = PinnedRing(engine, 2)
    memory = lent(ring)
    for number in range(2):
        assert ring.free()
        ring.begin(fill(memory.take().batches[0], number))
    assert not ring.free()
    assert engine.waited == 0
    engine.advance()
    assert ring.free()
    assert engine.waited == 0
    ring.begin(fill(memory.take().batches[0], 2))
    ring.begin(fill(memory.take().batches[0], 3))
    assert engine.waited == 1, "only for the oldest"


def test_a_copy_that_fails_takes_no_slot_and_gives_its_stage_back() -> None:
    engine = LateEngine()
    engine.fail_at = (1, 2, 3)
    ring = PinnedRing(engine, 1)
    loose = {"a": torch.arange(5)}
    for _ in range(3):
        with pytest.raises(MemoryError):
            ring.begin(loose)
    assert ring.free()
    batch = ring.hand_out(ring.begin(loose))
    ring.settle()
    assert batch["a"].tolist() == [0, 1, 2, 3, 4]
    assert len(engine.allocated) == 1


def test_memory_that_copies_read_goes_only_once_they_have_arrived() -> None:
    engine = LateEngine()
    ring = PinnedRing(engine, 3)
    copy = ring.begin({"a": torch.arange(4)})
    del ring
    gc.collect()
    assert engine.settled == 1
    assert copy.batch["a"].tolist() == [0, 1, 2, 3]


def test_a_stage_grows_a_few_times_and_keeps_columns_apart() -> None:
    engine = LateEngine()
    stage = Stage(engine)
    for size in range(1, 2000):
        columns = {"a": torch.arange(size), "b": torch.arange(size, dtype=torch.int32), "c": torch.ones(3).bool()}
        placed = stage.put(columns)
        assert all(torch.equal(placed[name], column) for name, column in columns.items())
        assert all(column.data_ptr() % 8 == 0 for column in placed.values())
    assert len(engine.allocated) <= 9
