"""Holding out a part of a dataset on the Hub, over our readers and over those of `datasets`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

from streamfeed import HoldOut, Source
from tests.corpora import id_of, texts_with_ids, write_shard
from tests.streams import Run, documents, stream

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed import StreamConfig
    from tests.servers.hub import Hub

pytestmark = pytest.mark.usefixtures("one_engine")

README = "---\nconfigs:\n- config_name: default\n  data_files: data/*.json\n  field: rows\n---\n"
SHARDS = 6


def published(hub: Hub, folder: Path, kind: str) -> None:
    """Put six shards of twenty records on the Hub; ``field`` is what only `datasets` reads."""
    files: dict[str, str | bytes] = {"README.md": README if kind == "field" else "# A corpus\n"}
    for shard in range(SHARDS):
        texts = texts_with_ids(20, first=20 * shard)
        if kind == "field":
            rows = [{"id": 20 * shard + i, "text": text} for i, text in enumerate(texts)]
            files[f"data/{shard}.json"] = json.dumps({"rows": rows})
        else:
            files[f"data/{shard}.{kind}"] = write_shard(kind, folder / "x", texts, first=20 * shard).read_bytes()
    hub.repo("org/corpus", files)


def ids_of(config: StreamConfig, tokenizer: Any) -> Counter[int]:
    run = Run.start(config, 2, 2, 2)
    found = documents(run.take(), run.loaders[0].plan.lanes, tokenizer.eos_token_id)
    return Counter(map(id_of, tokenizer.batch_decode(found)))


@pytest.mark.parametrize("kind", ["parquet", "jsonl.zst", "field"])
def test_part_and_rest_are_every_document_once(kind: str, hub: Hub, tmp_path: Path, tokenizer: Any) -> None:
    published(hub, tmp_path, kind)
    config = replace(stream(tmp_path, "jsonl", tokenizer), epochs=1, sources=[Source("hf://datasets/org/corpus")])
    texts = [str(text) for shard in range(SHARDS) for text in texts_with_ids(20, first=20 * shard)]
    hashed = {"text": texts, "key:id": [str(i) for i in range(20 * SHARDS)]}
    for by in ("text", "key:id", "shard"):
        rest, part = (
            ids_of(one, tokenizer)
            for one in (
                replace(config, hold_out=HoldOut(0.4, by)),
                replace(config, hold_out=HoldOut(0.4, by)).held_out(),
            )
        )
        assert rest + part == Counter(range(20 * SHARDS))
        assert min(len(rest), len(part)) > 10
        if by in hashed:
            assert set(part) == {i for i, one in enumerate(hashed[by]) if _digest(one) < 0.4 * 2**64}
        else:
            assert all(len({i in part for i in range(20 * shard, 20 * shard + 20)}) == 1 for shard in range(SHARDS))


def _digest(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())
