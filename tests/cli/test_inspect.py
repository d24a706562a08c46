"""``streamfeed inspect``: what is shown is what training is given."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from streamfeed.cli.inspect import Inspected, inspect
from streamfeed.cli.main import main
from streamfeed.cli.shown import show
from streamfeed.cli.spans import Decoder
from streamfeed.train.flags import Arguments, parse
from tests.tokenizers_for_tests import EOS, build_bert

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"def name_{number}(value):\n    return value + {number}" for number in range(9)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "other": text[::-1], "label": 1}) + "\n" for text in TEXTS))
    return path


def words_for(corpus: Path, tokenizer: Path, *more: str) -> list[str]:
    listed = ["--data.uri", str(corpus), "--data.tokenizer", str(tokenizer), "--data.shuffle_buffer", "0"]
    return [*listed, "--data.seq_len", "48", "--data.epochs", "1", *more]


def shown(found: Inspected) -> str:
    console = Console(width=300, record=True, quiet=False, force_terminal=False, soft_wrap=True, file=None)
    with console.capture() as captured:
        show(found, console)
    return captured.get()


def test_a_program_gets_the_rows_that_training_gets(
    corpus: Path, tokenizer_folder: Path, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *words_for(corpus, tokenizer_folder), "--rows", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["number"] for row in found["rows"]] == [0, 1]
    ids = [token for row in found["rows"] for token in row["ids"]]
    reference = [token for text in TEXTS for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]
    assert ids == reference[: len(ids)]
    for row in found["rows"]:
        assert row["tokens"] == len(row["ids"]) == sum(document["tokens"] for document in row["documents"])
        for document in row["documents"]:
            assert document["tokens"] == sum(span["tokens"] for span in document["spans"])
            assert row["labels"][document["start"]] == -100, "the first token of a piece is no label"
    text = "".join(span["text"] for row in found["rows"] for document in row["documents"] for span in document["spans"])
    assert text == tokenizer.decode(ids)
    assert found["stream"]["lanes"] == 1
    assert found["stream"]["sources"][0]["shards"] == 1
    assert found["counts"]["tokens"] >= len(ids)


def test_without_a_terminal_labels_are_between_marks_and_documents_on_lines(
    corpus: Path, tokenizer_folder: Path
) -> None:
    found = inspect(parse(Arguments.split(words_for(corpus, tokenizer_folder))), 1)
    (row,) = found.rows
    assert len(row.documents) > 1
    said = shown(found)
    lines = [line for line in said.splitlines() if " | " in line]
    assert len(lines) == len(row.documents)
    first, label, *_ = row.documents[0].spans
    assert (first.label, label.label) == (False, True)
    assert lines[0].startswith(f"      0 | {first.text}⟦")
    assert lines[0].endswith(f"{EOS}⟧")
    assert "\\n    return" in lines[0], "a document stays on its line"
    assert any(span.special and span.text == EOS for span in row.documents[0].spans)
    for part in (str(corpus.name), "1 shard(s)", "1 lane(s)", "of the room used", "engine"):
        assert part in said


def test_on_a_terminal_labels_are_green(corpus: Path, tokenizer_folder: Path) -> None:
    found = inspect(parse(Arguments.split(words_for(corpus, tokenizer_folder))), 1)
    console = Console(width=300, force_terminal=True, color_system="standard", soft_wrap=True)
    with console.capture() as captured:
        show(found, console)
    said = captured.get()
    assert "⟦" not in said
    assert "\x1b[32m" in said


def test_the_class_of_a_sample_is_shown_by_name(corpus: Path, tmp_path: Path) -> None:
    bert = build_bert(tmp_path / "bert")
    words = words_for(corpus, bert, "--data.objective", "classification", "--data.packing", "none")
    words += ["--data.classification.text_pair", "other", "--data.classification.classes", "3"]
    found = inspect(parse(Arguments.split(words)), 3)
    assert [row.chosen for row in found.rows] == [1, 1, 1]
    said = shown(found)
    assert "label 1 (1)" in said
    assert "⟦" not in said
    assert said.count("[CLS] def name") == 3
    assert said.count("[SEP]") == 6


def test_what_is_behind_a_mask_is_shown(corpus: Path, tmp_path: Path) -> None:
    bert = build_bert(tmp_path / "bert")
    words = words_for(
        corpus, bert, "--data.objective", "mlm", "--data.packing", "none", "--data.mlm.probability", "0.5"
    )
    found = inspect(parse(Arguments.split(words)), 4)
    hidden = [
        span for row in found.rows for document in row.documents for span in document.spans if span.target is not None
    ]
    assert any(span.text.strip() == "[MASK]" and span.label and span.tokens == 1 for span in hidden)
    assert f"=>{hidden[0].target}" in shown(found)


def test_fewer_rows_than_asked_for_is_no_error_and_none_is(
    corpus: Path, tokenizer_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(inspect(parse(Arguments.split(words_for(corpus, tokenizer_folder))), 1000).rows) > 1
    corpus.write_text("")
    assert main(["inspect", *words_for(corpus, tokenizer_folder)]) == 1
    assert "are empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "0"], "--rows takes a whole number"),
        (["--rows"], "--rows needs a value"),
        (["--data.sed", "1"], "the nearest is --data.seed"),
        ([], "no data is named"),
    ],
)
def test_settings_that_cannot_work_exit_with_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_command_leaves_no_log_handler_behind(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger("streamfeed").handlers)
    assert main(["inspect"]) == 2
    assert "no data is named" in capsys.readouterr().err
    assert logging.getLogger("streamfeed").handlers == before


def test_spans_are_consecutive_tokens_that_are_treated_alike(tokenizer_folder: Path) -> None:
    from streamfeed.encode.spec import tokenizer_spec

    spec = tokenizer_spec(str(tokenizer_folder), None)
    ids = np.asarray([[50, 51, 52, 0, 60, 61, 62, 0]])
    labels = np.asarray([[-100, 51, 52, 0, -100, -100, 70, -100]])
    owners = np.asarray([[0, 0, 0, 0, 1, 1, 1, -1]])
    (row,) = Decoder(spec, 3).rows({"input_ids": ids, "labels": labels, "document_ids": owners}, 4)
    assert (row.number, row.lane, row.tokens, row.width) == (4, 1, 7, 8)
    found = [[(span.tokens, span.label, span.special) for span in document.spans] for document in row.documents]
    assert found == [[(1, False, False), (2, True, False), (1, True, True)], [(2, False, False), (1, True, False)]]
    assert row.documents[1].spans[1].target is not None
