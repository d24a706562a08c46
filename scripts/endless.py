"""Streams a corpus that exists nowhere, and shows that nothing of it stays: no bytes on disk, no growth of memory.

    python scripts/endless.py                    # 10 GB from a file system that makes shards from their number
    python scripts/endless.py --http             # the same shards through a web server on loopback
    python scripts/endless.py --gb 2             # less of it

Working, temporary and cache folders of the run are fresh ones. What they hold is looked at all the time, files included
that are deleted and still open, and listed at the end. Memory is the RSS of the process tree, averaged over a tenth of
the run. States are taken at 1 % and at 90 %, and each is resumed in a fresh process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from streamfeed import StreamLoader

LINES = 1 << 14
SAMPLES = 200
"""How often memory is looked at in a run."""
LOOK_S = 0.5
LISTED = 10


def main() -> None:
    arguments = parse()
    if arguments.role:
        {"stream": stream, "resume": resume}[arguments.role](arguments)
    else:
        drive(arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=gigabytes, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=["stream", "resume"], help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def gigabytes(word: str) -> float:
    if not 0 < float(word) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, not {word}")
    return float(word)


def shards(arguments: argparse.Namespace) -> int:
    from streamfeed.testing.generated import LINE_BYTES

    return int(arguments.gb * 1e9 / (LINES * LINE_BYTES)) + 1


# The run: everything that is written must be in these folders


def drive(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="streamfeed-endless-") as name:
        folder = Path(name)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        for variable, part in (
            ("TMPDIR", "tmp"),
            ("XDG_CACHE_HOME", "cache"),
            ("HF_HOME", "cache/hf"),
            ("HOME", "home"),
        ):
            (folder / part).mkdir(parents=True, exist_ok=True)
            environment[variable] = str(folder / part)
        (folder / "work").mkdir()
        server = start_server(arguments) if arguments.http else None
        try:
            with Watch(folder) as watch:
                run(arguments, folder, environment, "stream")
                say("written under the working, temporary and cache folders:")
                tell(watch.look())
                for percent in (1, 90):
                    run(arguments, folder, environment, "resume", "--state", f"state-{percent}.json")
            say(f"the most that lay there at any of {watch.looks} looks:")
            tell(watch.most)
        finally:
            if server is not None:
                server.terminate()
                server.wait()


def tell(files: dict[str, int]) -> None:
    say(f"  {sum(files.values()) / 1e3:10,.1f} kB  in {len(files)} files" + ", the largest:" * (len(files) > LISTED))
    for name, size in sorted(files.items(), key=lambda item: -item[1])[:LISTED]:
        say(f"  {size / 1e3:10,.1f} kB  {name}")


def run(arguments: argparse.Namespace, folder: Path, environment: dict[str, str], role: str, *rest: str) -> None:
    command = [sys.executable, str(Path(__file__).resolve()), "--role", role, "--gb", str(arguments.gb)]
    command += ["--workers", str(arguments.workers), "--address", arguments.address]
    subprocess.run([*command, *rest], check=True, cwd=folder / "work", env=environment)


class Watch:
    """Looks at all files below a folder until it is left; ``most`` is what they were when they were largest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.most: dict[str, int] = {}
        self.looks = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.go_on, daemon=True)

    def look(self) -> dict[str, int]:
        """Return the bytes of every file by its name in the folder, deleted ones that a process holds open included."""
        found: dict[str, int] = {}
        named = [Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        for path in [path for path in named if not path.is_symlink()] + self.deleted():
            with contextlib.suppress(OSError):  # gone since
                name = path.relative_to(self.folder) if path in named else path.readlink()
                found[str(name)] = path.stat().st_size
        self.most, self.looks = max(self.most, found, key=lambda files: sum(files.values())), self.looks + 1
        return found

    def deleted(self) -> list[Path]:
        """Return the descriptors of the run's processes that are files of the folder without a name (on Linux)."""
        links: list[Path] = []
        for process in tree():
            with contextlib.suppress(OSError):
                links += Path(f"/proc/{process.pid}/fd").iterdir()
        mine = []
        for link in links:
            with contextlib.suppress(OSError):
                where = str(link.readlink())
                if where.startswith(f"{self.folder}/") and where.endswith(" (deleted)"):
                    mine.append(link)
        return mine

    def go_on(self) -> None:
        while not self.ended.wait(LOOK_S):
            self.look()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


# One process that streams


def loader_for(arguments: argparse.Namespace) -> StreamLoader:
    from streamfeed import Source, StreamConfig, StreamLoader

    count = shards(arguments)
    if arguments.address:
        source = Source(f"{arguments.address}/part-{{00000..{count - 1:05}}}.jsonl")
    else:
        source = Source("generated://corpus", storage_options={"shards": count, "lines": LINES})
    return StreamLoader(StreamConfig([source], tokenizer="tokenizer", seq_len=2048), 8, num_workers=arguments.workers)


def stream(arguments: argparse.Namespace) -> None:
    from streamfeed.testing.generated import LINE_BYTES

    train_a_tokenizer()
    loader = loader_for(arguments)
    most, due = arguments.gb * 1e9, [1, 90]
    samples: list[tuple[float, float]] = []
    text = LINE_BYTES / tokens_of_a_line(loader)
    streamed, began = 0.0, time.perf_counter()
    for batch in loader:
        streamed += batch["input_ids"].numel() * text
        while due and streamed >= most * due[0] / 100:
            Path(f"state-{due.pop(0)}.json").write_text(json.dumps(loader.state_dict()))
        if streamed >= most * len(samples) / SAMPLES:
            samples.append((streamed / most, tree_rss() / 1e6))
        if streamed >= most:
            break
    seconds = time.perf_counter() - began
    report = loader.report()
    say(
        f"{streamed / 1e9:.1f} GB of text in {seconds:.0f} s, {report.tokens / seconds / 1e6:.1f} M tokens/s, "
        f"{report.bytes_read / 1e9:.1f} GB read"
    )
    early, late = (average(samples, start) for start in (0.1, 0.9))
    growth = f" ({late / early - 1:+.1%})" if early and late else "; too short a run to compare"
    say(
        f"RSS of the process tree: {early:.0f} MB at {arguments.gb / 10:.2g} GB, "
        f"{late:.0f} MB at {arguments.gb:.2g} GB{growth}"
    )
    loader.close()


def resume(arguments: argparse.Namespace) -> None:
    loader = loader_for(arguments)
    loader.load_state_dict(json.loads(arguments.state.read_text()))
    began = time.perf_counter()
    next(iter(loader))
    seconds = time.perf_counter() - began
    say(
        f"resumed from {arguments.state.name}: first batch after {seconds:.2f} s, "
        f"{loader.report().bytes_read / 1e6:.0f} MB read by then"
    )
    loader.close()


def train_a_tokenizer() -> None:
    from streamfeed.testing.generated import LINE_BYTES, generated_bytes
    from streamfeed.train.demo import train_tokenizer

    lines = generated_bytes(0, 0, 2000 * LINE_BYTES).splitlines()
    train_tokenizer([json.loads(line)["text"] for line in lines], Path("tokenizer"), vocabulary=32768)


def tokens_of_a_line(loader: StreamLoader) -> float:
    """Return the tokens of a record of the corpus, on average over a few."""
    from streamfeed.encode.huggingface import HuggingFaceEngine
    from streamfeed.testing.generated import LINE_BYTES, generated_bytes

    texts = [json.loads(line)["text"] for line in generated_bytes(0, 0, 500 * LINE_BYTES).splitlines()]
    return len(HuggingFaceEngine(loader.tokenizer.json, loader.tokenizer.frame).encode(texts).ids) / len(texts)


def average(samples: list[tuple[float, float]], start: float) -> float:
    """Return the mean of a tenth of the run, 0 where no batch ended in it."""
    found = [rss for done, rss in samples if start <= done < start + 0.1]
    return sum(found) / len(found) if found else 0.0


def tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def tree_rss() -> int:
    total = 0
    for process in tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


# The same bytes through HTTP


def start_server(arguments: argparse.Namespace) -> subprocess.Popen[str]:
    program = Path(__file__).resolve().with_name("generated_server.py")
    command = [sys.executable, str(program), "--shards", str(shards(arguments)), "--lines", str(LINES)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    arguments.address = server.stdout.readline().strip()
    return server


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
