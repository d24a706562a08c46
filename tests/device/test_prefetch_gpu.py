"""The prefetcher on a GPU; what can be is checked in the same words here, by an engine whose copies come late."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch

from streamfeed import DevicePrefetcher, StreamConfig
from streamfeed.train.metrics import read_metrics
from tests.corpora import texts_with_ids, write_corpus
from tests.device.machines import (
    Cuda,
    Here,
    Machine,
    Span,
    copies_beside_kernels,
    pinned_memory,
    profiled,
    sleep,
    spans_of,
)
from tests.device.streams import EagerLoader, plain
from tests.streams import CACHE, Batches, corpus, equal, stream, take
from tests.train.jobs import FLAGS, finish, start

if TYPE_CHECKING:
    from pathlib import Path

ON = [pytest.param(Here, id="here"), pytest.param(Cuda, id="cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=ON)
def machine(request: pytest.FixtureRequest) -> Machine:
    made: Machine = request.param()
    return made


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any, one_engine: None) -> StreamConfig:
    corpus(tmp_path, "jsonl", [30, 20, 40, 25], words=20)
    return stream(tmp_path, "jsonl", tokenizer, seq_len=64)


def eager(config: StreamConfig, batch: int = 4, **options: Any) -> EagerLoader:
    return EagerLoader(config, batch, cache_dir=CACHE, **options)


def on_host(batches: list[Any]) -> Batches:
    return [{name: column.cpu().numpy() for name, column in batch.items()} for batch in batches]


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("packing", ["concat", "none"])
def test_sixteen_kept_batches_are_those_of_the_cpu_while_device_and_copies_are_behind(
    machine: Machine, depth: int, packing: Any, config: StreamConfig
) -> None:
    config = replace(config, packing=packing)
    columns: list[Any] = ["document_ids", "cu_seqlens"]
    reference = take(plain(config, 4, columns=columns), 48)
    prefetcher = machine.prefetcher(eager(config, columns=columns), depth)
    found: Batches = []
    kept: list[Any] = []
    machine.busy()
    for number, batch in enumerate(islice(prefetcher, 48)):
        if number % 3 == 0:
            machine.busy_copies(prefetcher)
        kept.append(batch)
        if len(kept) == 16:
            machine.settle()
            found += on_host(kept)
            kept = []
            machine.busy()
    assert equal(found, reference)


def test_what_is_queued_behind_a_long_kernel_reads_the_batch_although_it_was_dropped(
    machine: Machine, config: StreamConfig
) -> None:
    """The memory of a batch that was dropped is not given to the next copy while a kernel is still to read it."""
    reference = take(plain(config, 4), 40)
    sums = []
    prefetcher = machine.prefetcher(eager(config), 3)
    for batch in islice(prefetcher, 40):
        machine.busy()
        sums.append(machine.later(lambda batch=batch: (batch["input_ids"] * (batch["position_ids"] + 1)).sum()))  # type: ignore[misc]
        del batch
    expected = [int((batch["input_ids"] * (batch["position_ids"] + 1)).sum()) for batch in reference]
    assert [result() for result in sums] == expected


@pytest.mark.gpu
def test_batches_are_on_the_device_pinned_once_and_the_host_does_not_wait(config: StreamConfig) -> None:
    loader = eager(config)
    prefetcher = DevicePrefetcher(loader, "cuda", depth=2)
    batch = next(iter(prefetcher))
    assert {column.device for column in batch.values()} == {prefetcher.device}
    assert loader._opening.memory is not None
    assert all(torch.from_numpy(piece).is_pinned() for piece in loader._opening.memory._pieces)
    before = pinned_memory().get("num_host_alloc")
    done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    sleep(50)
    done.record()
    for _ in range(30):
        next(iter(prefetcher))
    assert not done.query(), "thirty batches were taken while one kernel ran"
    assert pinned_memory().get("num_host_alloc") == before
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("packing", ["concat", "none"])
def test_twenty_epochs_take_no_more_memory_than_ten(
    packing: Any, tmp_path: Path, tokenizer: Any, one_engine: None
) -> None:
    corpus(tmp_path, "jsonl", [30, 20], words=20)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=2, packing=packing)
    prefetcher = DevicePrefetcher(eager(config), "cuda", depth=3)
    seen = []
    for _ in range(20):
        for batch in prefetcher:
            (batch["input_ids"] + 1).sum()
            del batch
        torch.cuda.synchronize()
        gc.collect()
        pinned = pinned_memory()
        seen.append(
            (
                torch.cuda.memory_allocated(),
                torch.cuda.memory_reserved(),
                pinned.get("allocated_bytes.current"),
                pinned.get("active_bytes.current"),
            )
        )
    assert len(set(seen[9:])) == 1, seen


@pytest.mark.gpu
def test_copies_run_beside_kernels_on_another_stream(tmp_path: Path, config: StreamConfig) -> None:
    from torch.profiler import ProfilerActivity, profile

    prefetcher = DevicePrefetcher(eager(config), "cuda", depth=2)
    weights = torch.randn(2048, 2048, device="cuda")
    batches = iter(prefetcher)
    next(batches)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(20):
            made = next(batches)["input_ids"].float().mean() * weights
            for _ in range(20):
                made = made @ weights
        torch.cuda.synchronize()
    spans = profiled(profiler, tmp_path)
    copies = [span for span in spans if span.category == "gpu_memcpy" and "HtoD" in span.name]
    assert len(copies) >= 3 * 15
    assert len(copies_beside_kernels(spans)) > len(copies) / 2


def test_the_overlap_is_read_from_a_trace_as_the_profiler_writes_it() -> None:
    def event(name: str, category: str, stream: int, begin: float, duration: float) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration, "args": {"stream": stream}}

    spans = spans_of(
        {
            "traceEvents": [
                {"ph": "M", "name": "process_name", "args": {}},
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 9, "args": {}},
                event("gemm", "kernel", 7, 0, 10),
                event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 20, 8, 4),
                event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 20, 10, 4),
                event("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 7, 5, 1),
                event("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 20, 5, 1),
            ]
        }
    )
    assert len(spans) == 5
    assert copies_beside_kernels(spans) == [Span("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 20, 8, 12)]


@pytest.mark.gpu
@pytest.mark.processes
def test_the_main_job_trains_on_the_same_data_as_on_the_cpu(tmp_path: Path, tokenizer_folder: Path) -> None:
    check_main_jobs(tmp_path, tokenizer_folder, {}, {"CUDA_VISIBLE_DEVICES": ""})


def check_main_jobs(folder: Path, tokenizer: Path, one: dict[str, str], other: dict[str, str]) -> None:
    """Compare two runs, started with these variables: the same labels in each step, and so about the same losses."""
    write_corpus("jsonl", folder / "corpus", texts_with_ids(300), shards=3)
    flags = {**FLAGS, "model.dropout": 0.0, "train.max_steps": 12, "train.precision": "fp32", "eval.uri": "corpus/*"}
    runs = []
    for name, variables in {"one": one, "other": other}.items():
        process = start(folder, tokenizer, f"--train.output_dir={name}", flags=flags, environment=variables)
        finish(process)
        runs.append(read_metrics(folder / name / "metrics.jsonl"))
    for line, twin in zip(*runs, strict=True):
        assert (line["step"], line.get("tokens"), line.get("eval_labels")) == (
            twin["step"],
            twin.get("tokens"),
            twin.get("eval_labels"),
        )
        for loss in {"loss", "eval_loss"} & line.keys():
            assert line[loss] == pytest.approx(twin[loss], rel=5e-3)


@pytest.mark.gpu
def test_of_several_gpus_each_gets_its_own_batches(config: StreamConfig) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    reference = take(plain(config, 4), 10)
    prefetcher = DevicePrefetcher(eager(config), "cuda:1")
    kept = list(islice(prefetcher, 10))
    assert {column.device for batch in kept for column in batch.values()} == {torch.device("cuda", 1)}
    assert equal(on_host(kept), reference)


@pytest.mark.gpu
def test_a_prefetcher_that_is_dropped_in_the_middle_leaves_batches_whole(config: StreamConfig) -> None:
    reference = take(plain(config, 4), 3)
    machine = Cuda()
    prefetcher = machine.prefetcher(eager(config), 3)
    machine.busy_copies(prefetcher)
    kept = list(islice(prefetcher, 3))
    del prefetcher
    gc.collect()
    others = [torch.full((1 << 13,), -9).pin_memory() for _ in range(32)]  # as large as a slot, takes what was let go
    machine.settle()
    assert len(others) == 32
    assert equal(on_host(kept), reference)
