"""Every objective in each of its packings through the main job: it trains on just the labels of the stream's rows."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from streamfeed import StreamLoader
from streamfeed.train.cli import main
from streamfeed.train.flags import Arguments, parse
from tests.streams import CACHE
from tests.tokenizers_for_tests import build_bert

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 3
TINY = ["--model.hidden_size=16", "--model.num_layers=1", "--model.num_heads=2", "--loader.num_workers=0"]
RUN = [f"--train.max_steps={STEPS}", "--train.output_dir=run", "--data.seq_len=48", "--loader.batch_size=4"]
TEMPLATE = (
    "{% for turn in messages %}{% if turn.role == 'assistant' %}{% generation %}{{ turn.content }}{{ eos_token }}"
    "{% endgeneration %}{% else %}<{{ turn.role }}> {{ turn.content }} {% endif %}{% endfor %}"
)
CASES = [
    *(("lm", packing) for packing in ("concat", "best_fit", "none")),
    *(("chat", packing) for packing in ("best_fit", "none")),
    *(("prompt_completion", packing) for packing in ("concat", "best_fit")),
    *(("mlm", packing) for packing in ("concat", "best_fit", "none")),
    ("classification", "none"),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
    for name, size in (("DOCUMENTS", 40), ("ROWS", 8), ("TOKENS", 0)):  # thousands of samples would be packed at a time
        monkeypatch.setattr(f"streamfeed.lane.best_fit.WINDOW_{name}", size)
    with Path("records.jsonl").open("w") as file:
        for number in range(60):
            question, answer = (
                f"What is {number} and {number % 7}?",
                f"It is {number + number % 7}, " * (number % 4 + 1),
            )
            turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            record = {"text": question + answer, "messages": turns, "prompt": question, "completion": answer}
            file.write(json.dumps({**record, "label": number % 3}) + "\n")
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("one_engine")
@pytest.mark.parametrize(("objective", "packing"), CASES)
def test_every_objective_trains_on_the_labels_of_its_rows(
    objective: str, packing: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    bert = objective in ("mlm", "classification")
    tokenizer = build_bert(tmp_path / "bert") if bert else tokenizer_folder
    words = ["--data.uri=records.jsonl", f"--data.tokenizer={tokenizer}", f"--data.objective={objective}"]
    words += [f"--data.packing={packing}", *TINY, *RUN, "--eval.uri=records.jsonl"]
    if objective == "chat":
        words.append(f"--data.chat.template={TEMPLATE}")
    if objective == "classification":
        words += ["--data.classification.classes=3", "--data.classification.text_pair=completion"]
    assert main(words) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    stream = parse(Arguments.split(words)).data.stream()
    skipped = 0 if bert else 1  # nothing predicts the first column of a causal row
    with StreamLoader(stream, 4) as loader:
        labels = [batch["labels"] for batch in itertools.islice(loader, STEPS)]
    wanted = [column if column.ndim == 1 else column[:, skipped:] for column in labels]
    assert summary["tokens"] == sum(int((column != -100).sum()) for column in wanted) > 0
    held_out = replace(stream, epochs=1, shuffle_buffer=0)
    with StreamLoader(held_out, 4) as loader:
        assert summary["eval_labels"] == sum(
            int((labels != -100).sum())
            for batch in loader
            for labels in [batch["labels"] if batch["labels"].ndim == 1 else batch["labels"][:, skipped:]]
        )
    assert ("eval_accuracy" in summary) == (objective == "classification")
