"""Converts the same corpus with streamfeed, datasets and webdataset, and prints MB/s of records of each.

    python scripts/bench_convert.py                    # 1 GB of JSON Lines; every job twice, the better time counts
    python scripts/bench_convert.py --megabytes 5000 --workers 8 --repeat 3

Every job begins in a fresh process and with an empty folder, and ends when its shards are complete: `datasets` has its
cache of Arrow files to write first, as it does for its users, and gets as many processes as streamfeed where it takes
any; `webdataset`'s ShardWriter has one. All write shards of the same number of records, Parquet by zstd: `to_parquet`
of `datasets` takes Snappy alone, so its tables are written by pyarrow.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHARDS = 8
RECORDS = 10_000
"""Records in a shard of the output."""

STREAMFEED = """
import sys
from streamfeed.cli.main import main
if __name__ == "__main__":
    sys.exit(main(["convert", SOURCE, DEST, "--to", TO, "--max-records", str(RECORDS), "--workers", str(WORKERS),
                   "--quiet"]))
"""

DATASETS = """
import datasets, pathlib
import pyarrow.parquet as pq
if __name__ == "__main__":
    datasets.disable_progress_bars()
    files = sorted(map(str, pathlib.Path(SOURCE).glob("*")))
    name = "parquet" if files[0].endswith("parquet") else "json"
    found = datasets.load_dataset(name, data_files=files, split="train", cache_dir=DEST + "-cache", num_proc=WORKERS)
    for shard in range(-(-len(found) // RECORDS)):
        some = found.select(range(shard * RECORDS, min(len(found), (shard + 1) * RECORDS)))
        pq.write_table(some.with_format("arrow")[:], f"{DEST}/{shard:05}.parquet", compression="zstd")
"""

WEBDATASET = """
import json, pathlib
import webdataset
if __name__ == "__main__":
    number = 0
    with webdataset.ShardWriter(DEST + "/%05d.tar", maxcount=RECORDS, maxsize=1 << 40, verbose=0) as writer:
        for path in sorted(pathlib.Path(SOURCE).glob("*")):
            with path.open("rb") as lines:
                for line in lines:
                    record = json.loads(line)
                    text = record.pop("text")
                    writer.write({"__key__": f"{number:09}", "txt": text, "json": record})
                    number += 1
"""

JOBS: dict[tuple[str, str], dict[str, str]] = {
    ("jsonl", "parquet"): {"streamfeed": STREAMFEED, "datasets": DATASETS},
    ("parquet", "parquet"): {"streamfeed": STREAMFEED, "datasets": DATASETS},
    ("jsonl", "tar"): {"streamfeed": STREAMFEED, "webdataset": WEBDATASET},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to work; left out: a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamfeed-bench-", dir=arguments.folder) as name:
        folder = Path(name)
        size = corpus(folder / "jsonl", arguments.megabytes)
        run(STREAMFEED, folder / "jsonl", folder / "parquet", "parquet", arguments.workers)
        (folder / "parquet" / "index.json").unlink()
        print(f"{size / 1e6:,.0f} MB of JSON Lines in {SHARDS} shards; MB/s of it, {arguments.workers} workers")
        for (source, to), tools in JOBS.items():
            found: dict[str, list[float]] = {tool: [] for tool in tools}
            for _ in range(arguments.repeat):
                for tool, code in tools.items():
                    found[tool].append(run(code, folder / source, folder / "out", to, arguments.workers))
            best = {tool: min(times) for tool, times in found.items()}
            said = ", ".join(f"{tool} {size / seconds / 1e6:,.1f}" for tool, seconds in best.items())
            (other,) = (best[tool] for tool in tools if tool != "streamfeed")
            print(f"{source} -> {to}: {said}; {other / best['streamfeed']:.2f} times as fast", flush=True)


def run(code: str, source: Path, dest: Path, to: str, workers: int) -> float:
    """Return the seconds that a job takes in a process of its own."""
    for folder in (dest, dest.with_name(dest.name + "-cache")):
        shutil.rmtree(folder, ignore_errors=True)
    dest.mkdir()
    names = {"SOURCE": str(source), "DEST": str(dest), "TO": to, "WORKERS": workers, "RECORDS": RECORDS}
    script = dest.with_name("job.py")
    script.write_text("".join(f"{name} = {value!r}\n" for name, value in names.items()) + code)
    began = time.perf_counter()
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{to}:\n{done.stderr[-3000:]}")
    return seconds


def corpus(folder: Path, megabytes: int) -> int:
    """Write records as web corpora have them: a text of some kB, and some fields about it; return their bytes."""
    folder.mkdir()
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlucmfw", k=draw.randint(1, 9))) for _ in range(5000)]
    paragraphs = [" ".join(draw.choices(words, k=60)) for _ in range(2000)]
    total = number = 0
    for shard in range(SHARDS):
        with (folder / f"{shard:03}.jsonl").open("w", encoding="utf-8") as file:
            while total < megabytes * 1_000_000 * (shard + 1) // SHARDS:
                text = "\n".join(draw.choices(paragraphs, k=draw.randint(1, 11)))
                record = {
                    "id": f"urn:uuid:{number:012}",
                    "text": text,
                    "url": f"https://example.org/{number}",
                    "meta": {"language": "en", "score": draw.random(), "length": len(text)},
                }
                total += file.write(json.dumps(record) + "\n")
                number += 1
    return total


if __name__ == "__main__":
    main()
