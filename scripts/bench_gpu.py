"""How long a GPU waits for data: a small Llama at full speed on batches that come in three ways, side by side.

    python scripts/bench_gpu.py                   # three interleaved rounds; one command, no network, no data
    python scripts/bench_gpu.py --json            # one object in place of the table
    python scripts/bench_gpu.py --device cpu --steps 3 --layers 1 --hidden 64     # only to see that it runs

to()         every column by a blocking ``.to(device)``: what a plain loop does
pinned       ``pin_memory()`` and a copy that does not block, on the stream that computes
prefetched   ``DevicePrefetcher``: pinned slots, a stream of their own, ahead of time

Each is measured against ``resident``, the same step on one batch that lies on the device: data wait is the share of the
time that the step takes longer, whatever the reason. Host wait is the share that Python spent in asking for batches,
which costs nothing while the device has work queued. The corpus is random words, written on the first run to
``--folder``, with a byte-level BPE trained on them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import Tensor

    from streamfeed import StreamConfig, StreamLoader

    Batch = dict[str, Tensor]
    Way = Callable[[StreamLoader], Iterator[Batch]]

SHARDS = 8


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    import torch

    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        say(
            "bench_gpu.py measures a GPU, and PyTorch finds none (torch.cuda.is_available() is false); "
            "to see that it runs: --device cpu --steps 3 --layers 1 --hidden 64"
        )
        return 2
    make_corpus(arguments.folder, arguments.megabytes)
    config = stream_of(arguments)
    result = measure(arguments, config, device)
    if arguments.json:
        say(json.dumps(result))
    else:
        show(result)
    return 0


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "streamfeed-bench-gpu")
    parser.add_argument("--megabytes", type=int, default=256, help="text of the corpus, which repeats")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--depth", type=int, default=2, help="of the prefetcher")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200, help="of each measurement, behind --warmup")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


# What is trained on


def make_corpus(folder: Path, megabytes: int) -> None:
    done = folder / f"{megabytes}.done"
    if done.exists():
        return
    from streamfeed.train.demo import train_tokenizer

    sys.stderr.write(f"writing {megabytes} MB of random words to {folder}\n")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    pool = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(20_000)]
    texts: list[str] = []
    for shard in range(SHARDS):
        left = megabytes * 1_000_000 // SHARDS
        with (folder / "data" / f"{shard:03}.jsonl").open("w", encoding="utf-8") as file:
            while left > 0:
                text = " ".join(draw.choices(pool, k=draw.randint(50, 1500)))
                left -= len(text)
                file.write(json.dumps({"text": text}) + "\n")
                if len(texts) < 500:
                    texts.append(text)
    train_tokenizer(texts, folder / "tokenizer", vocabulary=8192)
    done.touch()


def stream_of(arguments: argparse.Namespace) -> StreamConfig:
    from streamfeed import Source, StreamConfig

    return StreamConfig(
        [Source(str(arguments.folder / "data"))],
        tokenizer=str(arguments.folder / "tokenizer"),
        seq_len=arguments.seq_len,
    )


def step_of(arguments: argparse.Namespace, vocabulary: int, device: torch.device) -> Callable[[Batch], None]:
    """Return one optimizer step of a Llama in bf16, which never waits for the device."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=arguments.hidden,
        intermediate_size=4 * arguments.hidden,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        max_position_embeddings=arguments.seq_len,
        use_cache=False,
    )
    model = LlamaForCausalLM(sizes).to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch: Batch) -> None:
        model(**batch, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


# The ways


def ways(arguments: argparse.Namespace, device: torch.device) -> dict[str, Way]:
    """Return how batches come to the device, by name."""
    from streamfeed import DevicePrefetcher

    def blocking(loader: StreamLoader) -> Iterator[Batch]:
        for batch in loader:
            yield {name: column.to(device) for name, column in batch.items()}

    def pinned(loader: StreamLoader) -> Iterator[Batch]:
        for batch in loader:
            yield {name: column.pin_memory().to(device, non_blocking=True) for name, column in batch.items()}

    def prefetched(loader: StreamLoader) -> Iterator[Batch]:
        return iter(DevicePrefetcher(loader, device, depth=arguments.depth))

    found: dict[str, Way] = {"to()": blocking, "pinned": pinned, "prefetched": prefetched}
    if device.type != "cuda":
        del found["pinned"]
    return found


def measure(arguments: argparse.Namespace, config: StreamConfig, device: torch.device) -> dict[str, Any]:
    """Measure all ways in interleaved rounds; return medians, and what they were measured with."""
    import torch

    from streamfeed import StreamLoader

    def loader() -> StreamLoader:
        made = StreamLoader(
            config, arguments.batch_size, num_workers=arguments.workers, plan=plans[0] if plans else None
        )
        plans[:] = [made.plan]
        return made

    plans: list[Any] = []
    with loader() as first:
        step = step_of(arguments, len(json.loads(first.tokenizer.json)["model"]["vocab"]), device)
        batch = {name: column.to(device) for name, column in next(iter(first)).items()}
    rounds: dict[str, list[dict[str, float]]] = {"resident": []}
    for _ in range(arguments.rounds):
        rounds["resident"].append(run(arguments, step, iter(lambda: batch, None), device))
        for name, way in ways(arguments, device).items():
            with loader() as fresh:
                rounds.setdefault(name, []).append(run(arguments, step, way(fresh), device))
    rows = {
        name: {key: statistics.median(one[key] for one in some) for key in some[0]} for name, some in rounds.items()
    }
    for name, row in rows.items():
        row["tokens_per_s"] = arguments.batch_size * arguments.seq_len / row["step_s"]
        alone = [one["step_s"] for one in rounds["resident"]]
        waits = [1 - whole / one["step_s"] for whole, one in zip(alone, rounds[name], strict=True)]
        row["data_wait_pct"] = 100 * statistics.median(waits)
    settings = {name: getattr(arguments, name) for name in vars(arguments) if name not in {"folder", "json"}}
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {"device": gpu, "torch": torch.__version__, "settings": settings, "ways": rows}


def run(
    arguments: argparse.Namespace, step: Callable[[Batch], None], batches: Iterator[Batch], device: torch.device
) -> dict[str, float]:
    """Take the steps; return seconds a step, and the share of them in which the host asked for a batch."""
    import torch

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for batch in islice(batches, arguments.warmup):
        step(batch)
    settle()
    began, asked = time.perf_counter(), 0.0
    for _ in range(arguments.steps):
        asking = time.perf_counter()
        batch = next(batches)
        asked += time.perf_counter() - asking
        step(batch)
    settle()
    seconds = time.perf_counter() - began
    return {"step_s": seconds / arguments.steps, "host_wait_pct": 100 * asked / seconds}


def show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    sizes = result["settings"]
    title = f"{result['device']}: {sizes['batch_size']} x {sizes['seq_len']} tokens a step, {sizes['workers']} workers"
    table = Table(title=f"{title}; medians of {sizes['rounds']} rounds")
    for name in ("batches", "ms a step", "tokens/s", "data wait %", "host wait %"):
        table.add_column(name, justify="left" if name == "batches" else "right")
    for name, row in result["ways"].items():
        figures = (1e3 * row["step_s"], row["tokens_per_s"], row["data_wait_pct"], row["host_wait_pct"])
        table.add_row(name, *(f"{figure:,.{digits}f}" for figure, digits in zip(figures, (2, 0, 1, 1), strict=True)))
    Console().print(table)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
