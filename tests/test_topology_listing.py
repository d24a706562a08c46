"""Listing calls counted at a real S3 server, over a real process group with real workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.streams import CACHE, Run, corpus, global_rows, stream

if TYPE_CHECKING:
    from tests.servers.s3_proxy import S3Proxy
    from tests.servers.seaweed import Bucket

ROOT = Path(__file__).parent.parent
RANKS, WORKERS, BATCHES = 3, 4, 3

RANK = """
import json, sys
from datetime import timedelta
from itertools import islice
from pathlib import Path
import torch.distributed as dist
from streamfeed import Source, StreamConfig, StreamLoader

rank, world, workers, batches = map(int, sys.argv[1:5])
folder, uri, tokenizer, cache = Path(sys.argv[5]), sys.argv[6], sys.argv[7], Path(sys.argv[8])
options = json.loads(sys.stdin.read())
group = f"file://{folder}/group"
dist.init_process_group("gloo", init_method=group, rank=rank, world_size=world, timeout=timedelta(seconds=60))
source = Source(uri, text="text", storage_options=options)
config = StreamConfig([source], tokenizer=tokenizer, seq_len=32, shuffle_buffer=24, lanes=world * workers)
with StreamLoader(config, 4, num_workers=workers, cache_dir=cache) as loader:
    ids = [batch["input_ids"].tolist() for batch in islice(loader, batches)]
    (folder / f"{rank}.json").write_text(json.dumps(ids))
dist.destroy_process_group()
"""


@pytest.mark.processes
@pytest.mark.timeout(180)  # three processes that import torch, and twelve workers
def test_three_ranks_of_four_workers_list_a_bucket_once(
    bucket: Bucket, s3_proxy: S3Proxy, tmp_path: Path, tokenizer: Any, tokenizer_folder: Path
) -> None:
    corpus(tmp_path / "web", "jsonl", [30] * 12, words=40)
    bucket.put_folder(tmp_path / "web", "web/")
    s3_proxy.script()
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, str(tmp_path / "rank.py")]
    shared = [str(RANKS), str(WORKERS), str(BATCHES), str(tmp_path), f"{bucket.url}/web/*.jsonl", str(tokenizer_folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, str(rank), *shared, str(CACHE)], env=environment, stdin=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    for process in ranks:
        assert process.stdin is not None
        process.stdin.write(json.dumps(s3_proxy.options))
        process.stdin.close()
    assert [process.wait(150) for process in ranks] == [0] * RANKS

    assert s3_proxy.count("LIST") == 1
    assert s3_proxy.count("HEAD") == 0
    assert {f"{bucket.name}/web/{shard:03}.jsonl" for shard in range(12)} <= {asked.path for asked in s3_proxy.log}
    config = stream(tmp_path / "web", "jsonl", tokenizer, lanes=RANKS * WORKERS)
    reference = global_rows(Run.start(config, 1, 4).take(RANKS * BATCHES))
    for rank in range(RANKS):
        rows = [row for batch in json.loads((tmp_path / f"{rank}.json").read_text()) for row in batch]
        assert [tuple(row) for row in rows] == [reference[t * RANKS + rank] for t in range(4 * BATCHES)]
