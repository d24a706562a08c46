"""Tokens per second of the loader beside the bare encode loop, over the same documents, in one run.

    python scripts/bench.py                       # workers 0, 1, 2; three interleaved rounds
    python scripts/bench.py --s3                  # also two workers on a loopback S3 server, and 30 ms farther away
    python scripts/bench.py --soak-gb 5           # memory of the process tree while 5 GB of text stream by

The corpus is every distinct source text under ``--roots`` (this Python's standard library and site-packages), once, as
Parquet (LZ4, row groups of 500); files over 16 kB are cut at line ends. A byte-level BPE of 32,768 entries is trained
on a part of it. Both are made on the first run, in ``--folder``.
Each measurement is a process of its own, so that no cache is warm. The bare loop reads nothing: its texts lie in
memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed import StreamLoader

SUFFIXES = {".py", ".pyi", ".h", ".hpp", ".c", ".cpp", ".cuh", ".rst", ".md", ".txt"}
SLICE_CHARACTERS = 256 << 10
SHARDS = 16
MOST_CHARACTERS = 16 << 10


def main() -> None:
    arguments = parse()
    if arguments.measure:
        result = {"bare": bare, "stream": stream, "memory": memory, "soak": soak}[arguments.measure](arguments)
        sys.stdout.write(json.dumps(result) + "\n")
        return
    make_corpus(arguments.folder, arguments.roots)
    if arguments.soak_gb:
        measure(arguments, "bare")
        show_soak(measure(arguments, "soak", Row("", arguments.workers[-1], {})))
        return
    rows = [Row(f"{workers} workers", workers, {}) for workers in arguments.workers]
    if not arguments.s3:
        show(arguments, rows)
        return
    with loopback_s3(arguments.folder / "data") as near:
        far = {
            "uri": near["uri"].replace("s3://", "flaky://"),
            "storage_options": {
                "target_protocol": "s3",
                "target_options": near["storage_options"],
                "latency_s": arguments.latency_ms / 1e3,
            },
        }
        rows.append(Row("2 workers, S3", 2, near))
        rows.append(Row(f"2 workers, S3 + {arguments.latency_ms:.0f} ms", 2, far))
        show(arguments, rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "streamfeed" / "bench")
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    parser.add_argument("--roots", type=Path, nargs="+", default=roots, help="folders to take source texts from")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--lanes", default="auto")
    parser.add_argument("--start-method", default=None)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="added to each request in the last row of --s3")
    parser.add_argument("--soak-gb", type=float, default=0.0)
    parser.add_argument("--source", type=json.loads, default={}, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=["bare", "stream", "memory", "soak"], help=argparse.SUPPRESS)
    return parser.parse_args()


# The corpus


def source_texts(roots: list[Path]) -> Iterator[str]:
    """Yield every distinct text once, in an order that mixes packages."""
    import xxhash

    paths = {path.resolve() for root in roots for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file()}
    seen: set[int] = set()
    for path in sorted(paths, key=lambda path: xxhash.xxh3_64_intdigest(bytes(path))):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        digest = xxhash.xxh3_64_intdigest(text.encode())
        if len(text) > 200 and digest not in seen:
            seen.add(digest)
            yield from cut(text)


def cut(text: str) -> Iterator[str]:
    """Cut ``text`` at line ends into pieces of at most about ``MOST_CHARACTERS``."""
    piece: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        if size and size + len(line) > MOST_CHARACTERS:
            yield "".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield "".join(piece)


def make_corpus(folder: Path, roots: list[Path]) -> None:
    if (folder / "done").exists():
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    from streamfeed.train.demo import train_tokenizer

    say(f"writing the corpus to {folder}")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    texts = list(source_texts(roots))
    for shard in range(SHARDS):
        table = pa.table({"text": texts[shard::SHARDS]})
        pq.write_table(table, folder / "data" / f"{shard:03}.parquet", compression="lz4", row_group_size=500)
    train_tokenizer(texts[:: max(1, len(texts) // 6000)], folder / "tokenizer", vocabulary=32768)
    (folder / "done").touch()


# What is measured, each in a process of its own


def bare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Encode every document with one thread on one core, and throw the ids away."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from streamfeed.encode.proof import thread_environment

    os.environ.update(thread_environment(1))
    import pyarrow.parquet as pq

    from streamfeed.encode.fast import FastokensEngine
    from streamfeed.encode.tokenizer import load_tokenizer

    spec = load_tokenizer(str(arguments.folder / "tokenizer"))
    engine = FastokensEngine(spec.json, spec.frame)
    texts: list[str] = []
    for shard in sorted((arguments.folder / "data").glob("*.parquet")):
        texts += pq.read_table(shard).column("text").to_pylist()
    tokens, start, size = 0, 0, 0
    began = time.perf_counter()
    for index, text in enumerate(texts):
        size += len(text)
        if size >= SLICE_CHARACTERS or index == len(texts) - 1:
            tokens += len(engine.encode(texts[start : index + 1]).ids)
            start, size = index + 1, 0
    seconds = time.perf_counter() - began
    found = {"tokens": tokens, "bytes": sum(len(text.encode()) for text in texts)}
    (arguments.folder / "corpus.json").write_text(json.dumps(found))
    return {"tokens": tokens, "seconds": seconds, "tokens_per_s": tokens / seconds}


def loader_for(arguments: argparse.Namespace) -> StreamLoader:
    from streamfeed import Source, StreamConfig, StreamLoader

    lanes = arguments.lanes if arguments.lanes == "auto" else int(arguments.lanes)
    config = StreamConfig(
        [Source(**(arguments.source or {"uri": str(arguments.folder / "data")}))],
        tokenizer=str(arguments.folder / "tokenizer"),
        seq_len=arguments.seq_len,
        lanes=lanes,
    )
    return StreamLoader(
        config, arguments.batch_size, num_workers=arguments.workers[0], start_method=arguments.start_method
    )


def stream(arguments: argparse.Namespace) -> dict[str, Any]:
    """Stream as many tokens as the corpus holds; the rate is that of all batches but the first.

    The stream repeats, as in training, so that workers are as far ahead at the end as they are at the beginning.
    """
    most = json.loads((arguments.folder / "corpus.json").read_text())["tokens"]
    began = time.perf_counter()
    loader = loader_for(arguments)
    made = time.perf_counter()
    batches = iter(loader)
    tokens = next(batches)["input_ids"].numel()
    first = time.perf_counter()
    streamed = 0
    while streamed < most:
        streamed += next(batches)["input_ids"].numel()
    ended = time.perf_counter()
    return {
        "setup_s": made - began,
        "first_batch_s": first - made,
        "seconds": ended - first,
        "tokens": tokens + streamed,
        "tokens_per_s": streamed / (ended - first),
        "lanes": loader.plan.lanes,
    }


def memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """As :func:`stream`, for the memory, which who started this process looks at."""
    most = json.loads((arguments.folder / "corpus.json").read_text())["tokens"]
    for batch in loader_for(arguments):
        most -= batch["input_ids"].numel()
        if most < 0:
            break
    return {}


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Stream ``--soak-gb`` of text, epoch after epoch, and sample the memory of the process tree."""
    loader = loader_for(arguments)
    corpus = json.loads((arguments.folder / "corpus.json").read_text())
    bytes_per_token = corpus["bytes"] / corpus["tokens"]
    most = arguments.soak_gb * 1e9
    samples: list[tuple[float, float]] = []
    streamed, due = 0.0, 0.0
    for batch in loader:
        streamed += batch["input_ids"].numel() * bytes_per_token
        if streamed >= due:
            samples.append((streamed / 1e9, tree_pss() / 1e6))
            due += most / 25
        if streamed >= most:
            break
    return {"samples": samples}


def peak_pss(process: subprocess.Popen[str]) -> int:
    """Return the highest PSS of ``process`` and its children until it ends: to ask stops them for milliseconds."""
    highest = 0
    while process.poll() is None:
        highest = max(highest, tree_pss(process.pid))
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
    return highest


def tree_pss(pid: int | None = None) -> int:
    import psutil

    total = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
    return total


# Stores


@contextmanager
def loopback_s3(folder: Path) -> Iterator[dict[str, Any]]:
    """Start an S3 server, put ``folder`` there, and yield what a Source takes to read it."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.servers.seaweed import Seaweed

    with tempfile.TemporaryDirectory(prefix="streamfeed-bench-") as name, Seaweed(Path(name)) as server:
        bucket = server.bucket("bench")
        bucket.put_folder(folder)
        yield {"uri": bucket.url, "storage_options": bucket.options}


# Showing


class Row(NamedTuple):
    """A line of the table: how many workers, and what the Source takes where it is not the local folder."""

    label: str
    workers: int
    source: dict[str, Any]


def measure(arguments: argparse.Namespace, what: str, row: Row = Row("", 0, {})) -> dict[str, Any]:  # noqa: B008
    command = [sys.executable, __file__, "--measure", what, "--workers", str(row.workers)]
    command += ["--source", json.dumps(row.source)]
    command += ["--folder", str(arguments.folder)]
    command += ["--batch-size", str(arguments.batch_size), "--seq-len", str(arguments.seq_len)]
    command += ["--lanes", str(arguments.lanes), "--soak-gb", str(arguments.soak_gb)]
    if arguments.start_method:
        command += ["--start-method", arguments.start_method]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        seen = {"peak_pss_mb": peak_pss(process) / 1e6} if what == "memory" else {}
        said = process.communicate()[0]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result | seen


def show(arguments: argparse.Namespace, rows: list[Row]) -> None:
    bares: list[dict[str, Any]] = []
    streams: dict[str, list[dict[str, Any]]] = {row.label: [] for row in rows}
    for _ in range(arguments.rounds):
        bares.append(measure(arguments, "bare"))
        for row in rows:
            streams[row.label].append(measure(arguments, "stream", row) | measure(arguments, "memory", row))
    loop = statistics.median(result["tokens_per_s"] for result in bares)
    say(f"{bares[0]['tokens'] / 1e6:.1f} M tokens; medians of {arguments.rounds} interleaved rounds")
    say(f"{'':24}{'M tokens/s':>12}{'of bare':>9}{'first batch s':>15}{'set-up s':>10}{'PSS MB':>8}")
    say(f"{'bare loop, one core':24}{loop / 1e6:12.1f}{1:9.2f}")
    for label, results in streams.items():
        middle = {key: statistics.median(result[key] for result in results) for key in results[0]}
        rate = middle["tokens_per_s"]
        say(
            f"{label:24}{rate / 1e6:12.1f}{rate / loop:9.2f}{middle['first_batch_s']:15.2f}"
            f"{middle['setup_s']:10.2f}{middle['peak_pss_mb']:8.0f}"
        )


def show_soak(result: dict[str, Any]) -> None:
    say(f"{'GB of text':>12}{'PSS MB':>8}")
    for gigabytes, megabytes in result["samples"]:
        say(f"{gigabytes:12.2f}{megabytes:8.0f}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
