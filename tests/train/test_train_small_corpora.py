from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from streamfeed.train.cli import main
from streamfeed.train.metrics import read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

TINY = ["--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2", "--loader.num_workers", "0"]
ROWS = ["--data.seq_len", "32", "--loader.batch_size", "2"]


@pytest.fixture(autouse=True)
def restore_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kind", ["one row group of 3,000 records", "10 records"])
def test_a_small_single_file_trains_without_a_warning(
    kind: str, tokenizer_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "10 records":
        uri = "ten.jsonl"
        Path(uri).write_text("".join(json.dumps({"text": f"record {n} of ten"}) + "\n" for n in range(10)))
    else:
        uri = "one.parquet"
        parquet.write_table(pa.table({"text": [f"record {n} of many" for n in range(3000)]}), uri, row_group_size=3000)
    words = ["--data.uri", uri, "--data.tokenizer", str(tokenizer_folder), "--train.output_dir", "run", *TINY, *ROWS]
    with caplog.at_level(logging.WARNING, "streamfeed"):
        assert main([*words, "--train.max_steps", "4", "--train.log_every", "1"]) == 0
    assert [line["step"] for line in read_metrics(Path("run/metrics.jsonl"))] == [1, 2, 3, 4]
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_finite_run_ends_with_the_data_and_says_what_was_not_trained_on(
    tokenizer_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["some text", None, "", "more text"] * 5
    Path("data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = ["--data.uri", "data.jsonl", "--data.tokenizer", str(tokenizer_folder), "--train.output_dir", "run", *TINY]
    words += [*ROWS, "--data.epochs", "1"]
    assert main(words) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["ended_by"] == "the end of the data"
    assert "5 null" in summary["not_trained_on"]
    assert "5 empty" in summary["not_trained_on"]
    assert "5 null" in capsys.readouterr().out
    steps = summary["step"]
    assert main(["--resume", "run"]) == 0, "there is nothing left to do, and that is no error"
    assert json.loads(Path("run/summary.json").read_text())["step"] == steps


def test_a_field_that_is_not_there_ends_with_an_error_and_the_folder_can_be_used_again(
    tokenizer_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("data.jsonl").write_text('{"body": "text"}\n' * 5)
    words = ["--data.uri", "data.jsonl", "--data.tokenizer", str(tokenizer_folder), "--train.output_dir", "run", *TINY]
    words += [*ROWS, "--train.max_steps", "1"]
    assert main(words) == 1
    message = capsys.readouterr().err
    assert "error: " in message
    assert "body" in message
    assert "Traceback" not in message
    assert main([*words, "--data.text", "body"]) == 0
