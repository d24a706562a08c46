"""Streams a corpus that exists nowhere, and shows that nothing of it stays: no bytes on disk, no growth of memory.

    python scripts/endless.py                    # 10 GB from a file system that makes shards from their number
    python scripts/endless.py --http             # the same shards through a web server on loopback
    python scripts/endless.py --gb 2             # less of it

Working, temporary and cache folders of the run are fresh ones; what they hold at the end is listed. Memory is the RSS
of the process tree, averaged over a tenth of the run. States are taken at 1 % and at 90 %, and each is resumed in a
fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamfeed import StreamLoader

LINES = 1 << 14
RANGE = re.compile(r"bytes=(\d+)-(\d+)")


def main() -> None:
    arguments = parse()
    if arguments.serve:
        serve(arguments)
    elif arguments.role:
        {"stream": stream, "resume": resume}[arguments.role](arguments)
    else:
        drive(arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=["stream", "resume"], help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


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
            run(arguments, folder, environment, "stream")
            size, files = written(folder)
            say(f"written under the working, temporary and cache folders: {size / 1e3:,.0f} kB in {files} files")
            for percent in (1, 90):
                run(arguments, folder, environment, "resume", "--state", f"state-{percent}.json")
        finally:
            if server is not None:
                server.terminate()
                server.wait()


def run(arguments: argparse.Namespace, folder: Path, environment: dict[str, str], role: str, *rest: str) -> None:
    command = [sys.executable, str(Path(__file__).resolve()), "--role", role, "--gb", str(arguments.gb)]
    command += ["--workers", str(arguments.workers), "--port", str(arguments.port)]
    command += ["--http"] if arguments.http else []
    subprocess.run([*command, *rest], check=True, cwd=folder / "work", env=environment)


def written(folder: Path) -> tuple[int, int]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_size for path in files), len(files)


# One process that streams


def loader_for(arguments: argparse.Namespace) -> StreamLoader:
    from streamfeed import Source, StreamConfig, StreamLoader

    count = shards(arguments)
    if arguments.http:
        uri = f"http://127.0.0.1:{arguments.port}/part-{{00000..{count - 1:05}}}.jsonl"
        source = Source(uri)
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
    for number, batch in enumerate(loader):
        streamed += batch["input_ids"].numel() * text
        if due and streamed >= most * due[0] / 100:
            Path(f"state-{due.pop(0)}.json").write_text(json.dumps(loader.state_dict()))
        if number % 500 == 0:
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
    say(
        f"RSS of the process tree: {early:.0f} MB at {arguments.gb / 10:.1f} GB, "
        f"{late:.0f} MB at {arguments.gb:.1f} GB ({late / early - 1:+.1%})"
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
    found = [rss for done, rss in samples if start <= done < start + 0.1]
    return sum(found) / len(found)


def tree_rss() -> int:
    import psutil

    me = psutil.Process()
    return sum(process.memory_info().rss for process in (me, *me.children(recursive=True)))


# The same bytes through HTTP


def start_server(arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        arguments.port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", "--port", str(arguments.port), "--gb", str(arguments.gb)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()  # says that it listens
    return server


def serve(arguments: argparse.Namespace) -> None:
    from streamfeed.testing.generated import GeneratedFileSystem

    fs = GeneratedFileSystem(shards=shards(arguments), lines=LINES)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(b"", head=True)

        def do_GET(self) -> None:
            asked = RANGE.fullmatch(self.headers.get("Range", ""))
            if asked is None:
                self.send_error(400, "ask for a range")
                return
            start, stop = int(asked[1]), int(asked[2]) + 1
            self.answer(fs.cat_file(self.path, start, stop), f"bytes {start}-{stop - 1}")

        def answer(self, body: bytes, part: str = "", *, head: bool = False) -> None:
            entry = fs.info(self.path)
            self.send_response(206 if part else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{entry["ETag"]}"')
            self.send_header("Content-Length", str(entry["size"] if head else len(body)))
            if part:
                self.send_header("Content-Range", f"{part}/{entry['size']}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    say("listening")
    server.serve_forever()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
