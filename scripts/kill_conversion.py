"""Kills conversions again and again, and shows that the end is that of one that was never killed.

    python scripts/kill_conversion.py                  # 20 kills of each of four conversions
    python scripts/kill_conversion.py --kills 5

Each conversion runs as `streamfeed convert --workers 2` in a session of its own. SIGKILL goes to all of its processes
at a random time of the whole run's length, start-up included; then the same command goes on. At the end names and
SHA-256 of all files must be those of a conversion that nobody killed, and nothing else may be left.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = "import sys; from streamfeed.cli.main import main; sys.exit(main(sys.argv[1:]))"
CONVERSIONS = {
    "parquet": ["--to", "parquet", "--max-records", "500"],
    "jsonl.zst, shuffled": ["--to", "jsonl.zst", "--max-records", "500", "--shuffle", "1"],
    "tar": ["--to", "tar", "--max-bytes", "400K"],
    "parquet, shuffled": ["--to", "parquet", "--max-bytes", "400K", "--shuffle", "2"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each conversion")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="streamfeed-kills-") as name:
        folder = Path(name)
        write_corpus(folder / "in")
        for number, (what, flags) in enumerate(CONVERSIONS.items()):
            whole, killed = folder / f"whole-{number}", folder / f"killed-{number}"
            began = time.monotonic()
            subprocess.run(command(folder / "in", whole, flags), check=True)
            length = time.monotonic() - began
            done = kills(command(folder / "in", killed, flags), killed, length, arguments.kills, draw)
            subprocess.run(command(folder / "in", killed, flags), check=True)
            if hashes(killed) != hashes(whole):
                raise SystemExit(f"{what}: the output differs after {done} kills")
            print(f"{what}: {done} kills, {len(hashes(whole))} files with the same SHA-256", flush=True)


def command(source: Path, dest: Path, flags: list[str]) -> list[str]:
    return [sys.executable, "-c", RUN, "convert", str(source), str(dest), *flags, "--workers", "2", "--quiet"]


def kills(words: list[str], dest: Path, length: float, wanted: int, draw: random.Random) -> int:
    """Start and kill until ``wanted`` runs were killed; one that ended before begins anew."""
    done = 0
    while done < wanted:
        running = subprocess.Popen(words, start_new_session=True)
        try:
            running.wait(draw.uniform(0.3, 1.0) * length)
        except subprocess.TimeoutExpired:
            done += 1
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        if (dest / "index.json").exists() and not (dest / "_convert").exists() and done < wanted:
            for path in dest.iterdir():  # it was complete: there is nothing more to interrupt
                path.unlink()
    return done


def hashes(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def write_corpus(folder: Path) -> None:
    """Write 20,000 records over four shards."""
    folder.mkdir()
    draw = random.Random(1)
    for shard in range(4):
        with (folder / f"{shard}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(shard * 5000, shard * 5000 + 5000):
                text = " ".join(str(draw.random()) for _ in range(draw.randint(1, 60)))
                file.write(json.dumps({"id": number, "text": text, "meta": {"even": number % 2 == 0}}) + "\n")


if __name__ == "__main__":
    main()
