"""A run that trained on S3, traced: the records that its batches carried, from the bucket, and no key is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from streamfeed.cli.main import main as command
from streamfeed.loader.loader import StreamLoader
from streamfeed.train import loop
from streamfeed.train.cli import main as train
from tests.corpora import texts_with_ids, write_corpus
from tests.servers.seaweed import KEY, SECRET, Bucket
from tests.tracing import numbered_rows
from tests.train.jobs import FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfeed.loader.provenance import Piece, TracedBatch

STEPS = 11
SKIPPED = 8


class Carrying(StreamLoader):
    """A loader whose batches know their records, which are kept as they are handed out."""

    given: dict[int, tuple[list[int], tuple[Piece, ...]]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, provenance=True)

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            Carrying.given |= numbered_rows([cast("TracedBatch", batch)])
            yield batch


@pytest.fixture
def texts(bucket: Bucket, tmp_path: Path) -> dict[str, list[str]]:
    """The texts of every shard of a bucket, of two formats, by its URL."""
    found: dict[str, list[str]] = {}
    for kind, first in (("parquet", 0), ("jsonl.gz", 1000)):
        some = [text or "" for text in texts_with_ids(100, first=first)]
        for index, path in enumerate(write_corpus(kind, tmp_path / "local", some, shards=2)):
            bucket.put(f"web/{path.name}", path.read_bytes())
            found[f"{bucket.url}/web/{path.name}"] = some[50 * index : 50 * index + 50]
    return found


@pytest.fixture
def run(
    bucket: Bucket, texts: dict[str, list[str]], tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A run folder: trained, resumed with other batches behind some rows, and the keys given as flags each time."""
    assert texts
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(loop, "StreamLoader", Carrying)
    own = {"data.uri": f"{bucket.url}/web", "data.tokenizer": tokenizer_folder, "loader.num_workers": 0}
    words = [f"--{name}={value}" for name, value in {**FLAGS, **own, "train.output_dir": "run"}.items()]
    Carrying.given = {}
    assert train([*words, "--train.max_steps=6", options(bucket)]) == 0
    more = [f"--train.max_steps={STEPS}", f"--train.skip_rows={SKIPPED}", "--loader.batch_size=4", options(bucket)]
    assert train(["--resume=run", *more]) == 0
    return "run"


def options(bucket: Bucket, **changes: str) -> str:
    return f"--data.storage_options={json.dumps({**bucket.options, **changes})}"


def check_no_key(*said: str) -> None:
    for secret in (KEY, SECRET, SECRET[::-1]):
        assert secret not in "".join(said)


@pytest.mark.usefixtures("one_engine")
def test_every_step_on_s3_is_traced_to_the_records_that_its_batches_carried_and_no_key_is_told(
    run: str, bucket: Bucket, texts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert command(["trace", run, "--steps", f"1:{STEPS}", "--json", "--records", options(bucket)]) == 0
    said = capsys.readouterr()
    check_no_key(*said)
    steps = json.loads(said.out)["steps"]
    numbers = [number for number in range(4 * STEPS + SKIPPED) if not 24 <= number < 24 + SKIPPED]
    assert [[row["row"] for row in step["rows"]] for step in steps] == [
        numbers[4 * index : 4 * index + 4] for index in range(STEPS)
    ]
    told = set()
    for row in (row for step in steps for row in step["rows"]):
        _, pieces = Carrying.given[row["row"]]
        assert [_of_trace(piece) for piece in row["pieces"]] == [_of_batch(piece) for piece in pieces]
        for piece in row["pieces"]:
            (record,) = piece["records"]
            assert record["value"] == texts[record["shard"]][record["record"]]
            told.add(record["shard"])
    assert len(told) > 1


def _of_trace(piece: dict[str, Any]) -> object:
    places = [(one["source"], one["shard"], one["record"], one["epoch"]) for one in piece["records"]]
    return piece["columns"], piece["tokens"], piece["sample"], places


def _of_batch(piece: Piece) -> object:
    places = [(one.source, one.shard, one.record, one.epoch) for one in piece.records]
    tokens = [piece.token, piece.token + piece.end - piece.begin]
    return [piece.begin, piece.end], tokens, piece.sample, places


@pytest.mark.usefixtures("one_engine")
def test_a_trace_finds_keys_in_the_environment_and_tells_none_where_they_are_wrong_or_shards_have_changed(
    run: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def traced(*words: str) -> tuple[int, str]:
        code = command(["trace", run, "--step", "9", *words])
        said = "".join(capsys.readouterr())
        check_no_key(said)
        return code, said

    capsys.readouterr()
    code, said = traced(options(bucket, secret=SECRET[::-1]))
    assert code == 1
    assert f"{bucket.url}/web" in said
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", str(bucket.options["endpoint_url"]))
    code, said = traced()
    assert code == 0
    assert "step 9: rows from 40 to 43 of the stream (made again from run/checkpoints/step-000008)" in said
    assert f"{bucket.url}/web/part-0000" in said
    bucket.put("web/part-00000.parquet", b"PAR1")
    code, said = traced()
    assert code == 1
    assert "the state belongs to another stream" in said
