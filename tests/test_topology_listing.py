"""Listing calls counted at a real S3 server, over a real process group with real workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.streams import Run, corpus, global_rows, stream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributed.pool import RankPool
    from tests.servers.s3_proxy import S3Proxy
    from tests.servers.seaweed import Bucket

RANKS, WORKERS, BATCHES = 3, 4, 3


@pytest.mark.processes
@pytest.mark.timeout(180)  # twelve workers
def test_three_ranks_of_four_workers_list_a_bucket_once(
    bucket: Bucket, s3_proxy: S3Proxy, tmp_path: Path, tokenizer: Any, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    corpus(tmp_path / "web", "jsonl", [30] * 12, words=40)
    bucket.put_folder(tmp_path / "web", "web/")
    s3_proxy.script()
    arguments = {"uri": f"{bucket.url}/web/*.jsonl", "options": s3_proxy.options, "tokenizer": str(tokenizer_folder)}
    counts = {"workers": WORKERS, "batches": BATCHES}
    per_rank = rank_pool.run(tmp_path / "ranks", "tests.distributed.work:read_a_store", RANKS, {**arguments, **counts})

    assert s3_proxy.count("LIST") == 1
    assert s3_proxy.count("HEAD") == 0
    assert {f"{bucket.name}/web/{shard:03}.jsonl" for shard in range(12)} <= {asked.path for asked in s3_proxy.log}
    config = stream(tmp_path / "web", "jsonl", tokenizer, lanes=RANKS * WORKERS)
    reference = global_rows(Run.start(config, 1, 4).take(RANKS * BATCHES))
    for rank, rows in enumerate(per_rank):
        assert [tuple(row) for row in rows] == [reference[t * RANKS + rank] for t in range(4 * BATCHES)]
