"""Batch memory: taken again once nobody holds it, and never before."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from streamfeed.loader.memory import KEPT, Batch, BatchMemory

if TYPE_CHECKING:
    from collections.abc import Callable


def addresses(memory: BatchMemory, count: int) -> set[int]:
    """Return where ``count`` batches lie that are held at once."""
    held = [memory.take().batches[0] for _ in range(count)]
    return {batch["input_ids"].data_ptr() for batch in held}


@pytest.mark.parametrize(
    "hold",
    [
        lambda batch: batch,
        lambda batch: batch["labels"],
        lambda batch: batch["input_ids"][1:, :3],
        lambda batch: batch["position_ids"].numpy(),
        lambda batch: batch["position_ids"].numpy()[:1],
        lambda batch: memoryview(batch["labels"].numpy()),
        lambda batch: torch.utils.dlpack.from_dlpack(batch["labels"]),
    ],
    ids=["batch", "tensor", "view", "array", "array view", "buffer", "dlpack"],
)
def test_memory_that_anything_holds_is_not_taken_again(hold: Callable[[Batch], Any]) -> None:
    memory = BatchMemory(2, 5)
    slot = memory.take()
    slot.batches[0]["labels"][:] = 7
    held, where = hold(slot.batches[0]), slot.batches[0]["input_ids"].data_ptr()
    del slot
    gc.collect()
    assert where not in addresses(memory, 2 * KEPT)
    assert held is not None


def test_memory_that_a_graph_holds_is_not_taken_again() -> None:
    memory = BatchMemory(2, 5)
    slot = memory.take()
    slot.batches[0]["input_ids"][:] = 1
    where = slot.batches[0]["input_ids"].data_ptr()
    weight = torch.ones(3, 4, requires_grad=True)
    loss = torch.nn.functional.embedding(slot.batches[0]["input_ids"], weight).sum()
    del slot
    assert where not in addresses(memory, 2 * KEPT)
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert weight.grad[1].tolist() == [10.0] * 4


def test_memory_is_not_taken_from_its_holder_where_reference_counts_read_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from Python 3.14 on, where a local variable passed to getrefcount no longer counts."""
    real = sys.getrefcount
    monkeypatch.setattr("streamfeed.loader.memory.sys.getrefcount", lambda item: real(item) - 2)  # one is the lambda's
    memory = BatchMemory(2, 5)
    assert len(addresses(memory, 2 * KEPT)) == 2 * KEPT
    assert len({memory.take().batches[0]["input_ids"].data_ptr() for _ in range(20)}) == 1


def test_memory_that_nobody_holds_is_taken_again() -> None:
    memory = BatchMemory(2, 5)
    seen = {memory.take().batches[0]["input_ids"].data_ptr() for _ in range(50)}
    assert len(seen) == 1
    many = addresses(memory, 3 * KEPT)
    assert len(many) == 3 * KEPT


def test_what_is_written_to_the_arrays_is_in_the_batch() -> None:
    slot = BatchMemory(2, 3).take()
    for value, array in enumerate((slot.arrays.input_ids, slot.arrays.labels, slot.arrays.position_ids)):
        array[:] = value
    assert [tensor.tolist() for tensor in slot.batches[0].values()] == [[[value] * 3] * 2 for value in range(3)]
    assert all(tensor.dtype == torch.int64 for tensor in slot.batches[0].values())


def test_batches_of_a_group_lie_one_behind_the_other_and_hold_it_together() -> None:
    memory = BatchMemory(2, 3, 4)
    slot = memory.take()
    slot.arrays.labels[:] = [[row] * 3 for row in range(8)]
    assert [batch["labels"][:, 0].tolist() for batch in slot.batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    last, where = slot.batches[3], slot.batches[0]["input_ids"].data_ptr()
    del slot
    assert where not in addresses(memory, 2 * KEPT)
    assert last["labels"].tolist() == [[6] * 3, [7] * 3]
