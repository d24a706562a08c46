"""The main job on a real S3 server: killed, resumed to the bit, and the keys written nowhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.servers.seaweed import KEY, SECRET, Bucket
from tests.tokenizers_for_tests import standard_library_texts
from tests.train.jobs import FLAGS, Running, assert_equal_runs, finish, fork, kill_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributed.pool import RankPool

STEPS = 16


@pytest.fixture
def corpus(bucket: Bucket) -> Bucket:
    """Three shards of texts in a bucket."""
    for shard in range(3):
        lines = [json.dumps({"text": text[:600]}) for text in standard_library_texts()[shard::3]]
        bucket.put(f"web/{shard}.jsonl", ("\n".join(lines) + "\n").encode())
    return bucket


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_run_on_s3_killed_and_resumed_equals_the_uninterrupted_one_and_keeps_no_key(
    corpus: Bucket, tmp_path: Path, tokenizer_folder: Path, rank_pool: RankPool
) -> None:
    """Keys come from the environment, where the S3 library looks by itself; those of the resume from a flag."""
    flags = {**FLAGS, "data.uri": f"{corpus.url}/web/*.jsonl", "train.max_steps": STEPS}
    home = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    keys["AWS_ENDPOINT_URL_S3"] = str(corpus.options["endpoint_url"])

    def run(name: str, *words: str, **variables: str) -> Running:
        words = (f"--train.output_dir={name}", *words)
        environment = {**home, **variables}
        return fork(rank_pool, tmp_path, tokenizer_folder, *words, flags=flags, environment=environment)

    def options(secret: str) -> str:
        return f"--data.storage_options={json.dumps({**corpus.options, 'secret': secret})}"

    said = [finish(run("straight", **keys)), kill_at(run("killed", **keys), 6)]
    assert (tmp_path / "killed/checkpoints/step-000004/manifest.json").exists()
    said.append(finish(run("killed", options(SECRET), "--resume=killed")))
    said.append(finish(run("refused", options(SECRET[::-1]), "--resume=killed"), code=1))

    assert_equal_runs(tmp_path / "straight", tmp_path / "killed", STEPS)
    assert "step 5/" in said[2]
    assert "step 4/" not in said[2]
    assert f"{corpus.url}/web/" in said[3]
    assert "SignatureDoesNotMatch" in said[3]
    for secret in (KEY, SECRET, SECRET[::-1]):
        assert secret not in "".join(said)
        assert [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []
