"""Where a check of the prefetcher runs: on CUDA, or here with copies that come late, so that the check itself runs.

``busy`` keeps the device's current stream occupied, ``busy_copies`` the one that copies, both without the host.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from streamfeed import DevicePrefetcher
from tests.device.fake_engine import LateEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch.profiler import profile

    from streamfeed import StreamLoader

CYCLES = 20_000_000  # 10 to 20 ms


def sleep(kernels: int = 1) -> None:
    """Keep the current stream busy for that many times 10 to 20 ms."""
    torch.cuda._sleep(kernels * CYCLES)  # type: ignore[no-untyped-call]


def pinned_memory() -> dict[str, int]:
    """Return PyTorch's figures of pinned memory; none before 2.7."""
    figures: dict[str, int] = getattr(torch.cuda, "host_memory_stats", dict)()
    return figures


class Machine(Protocol):
    def prefetcher(self, loader: StreamLoader, depth: int, **options: Any) -> DevicePrefetcher: ...

    def busy(self) -> None: ...

    def busy_copies(self, prefetcher: DevicePrefetcher) -> None: ...

    def later(self, work: Callable[[], torch.Tensor]) -> Callable[[], int]:
        """Queue ``work`` behind what is queued; return what waits for its result."""

    def settle(self) -> None: ...


class Cuda:
    """A real GPU."""

    def prefetcher(self, loader: StreamLoader, depth: int, **options: Any) -> DevicePrefetcher:
        return DevicePrefetcher(loader, "cuda", depth=depth, **options)

    def busy(self) -> None:
        sleep()

    def busy_copies(self, prefetcher: DevicePrefetcher) -> None:
        ring: Any = prefetcher._ring
        with torch.cuda.stream(ring._engine._stream):
            sleep()

    def later(self, work: Callable[[], torch.Tensor]) -> Callable[[], int]:
        made = work()
        return lambda: int(made)

    def settle(self) -> None:
        torch.cuda.synchronize()


class Here:
    """The CPU, its copies and its work as late as possible."""

    def __init__(self) -> None:
        self.engine = LateEngine(0.0)

    def prefetcher(self, loader: StreamLoader, depth: int, **options: Any) -> DevicePrefetcher:
        return DevicePrefetcher(loader, "cpu", depth=depth, engine=self.engine, **options)

    def busy(self) -> None:
        self.engine.chance = 0.0

    def busy_copies(self, prefetcher: DevicePrefetcher) -> None:
        self.engine.chance = 0.0

    def later(self, work: Callable[[], torch.Tensor]) -> Callable[[], int]:
        def result() -> int:
            self.engine.settle()
            return int(work())

        return result

    def settle(self) -> None:
        self.engine.settle()


class Span(NamedTuple):
    """What a stream of the device did, in microseconds."""

    name: str
    category: str
    stream: int
    begin: float
    end: float


def spans_of(trace: dict[str, Any]) -> list[Span]:
    """Return what the device did in a Chrome trace of the PyTorch profiler."""
    return [
        Span(event["name"], event["cat"], int(event["args"]["stream"]), event["ts"], event["ts"] + event["dur"])
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in {"kernel", "gpu_memcpy"} and "stream" in event["args"]
    ]


def profiled(profiler: profile, folder: Path) -> list[Span]:
    """Return the spans of a profile that has ended."""
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return spans_of(json.loads((folder / "trace.json").read_text()))


def copies_beside_kernels(spans: Sequence[Span]) -> list[Span]:
    """Return the copies to the device during which a kernel ran on another stream."""
    kernels = [span for span in spans if span.category == "kernel"]
    copies = [span for span in spans if span.category == "gpu_memcpy" and "HtoD" in span.name]
    return [
        copy
        for copy in copies
        if any(k.stream != copy.stream and k.begin < copy.end and copy.begin < k.end for k in kernels)
    ]
