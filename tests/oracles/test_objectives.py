"""Every objective in every packing it has: exact on any topology and across a resume at every batch."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamfeed import Source, StreamConfig
from streamfeed.objectives import Chat, Classification, Lm, Mlm, Objective, PromptCompletion
from tests.corpora import WORDS, write_records
from tests.streams import CACHE, Batches, InProcessLoader, Run, equal, take
from tests.tokenizers_for_tests import EOS, build_bert

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

pytestmark = pytest.mark.usefixtures("one_engine")

TEMPLATE = (  # no token of the content straddles the digit in front of it
    "{% for message in messages %}<{{ message.role }} 1{{ message.content }}{% if message.role == 'assistant' %}"
    + EOS
    + "{% endif %}\n{% endfor %}"
)
OBJECTIVES: dict[str, Objective] = {
    "lm": Lm(),
    "chat": Chat(template=TEMPLATE),
    "chat_all": Chat(template=TEMPLATE, train_on="all"),
    "prompt_completion": PromptCompletion(),
    "mlm": Mlm(),
    "whole_word": Mlm(0.3, whole_word=True),
    "pairs": Classification(text_pair="pair", names=("no", "yes", "maybe")),
    "single": Classification(label="number", classes=5),
}
PACKINGS: dict[str, dict[str, Any]] = {
    "concat": {},
    "best_fit": {"packing": "best_fit"},
    "none": {"packing": "none"},
    "grouped": {"packing": "none", "group_by_length": True},
}
CASES = [
    (objective, packing)
    for objective in OBJECTIVES
    for packing in PACKINGS
    if not isinstance(OBJECTIVES[objective], Classification) or packing in {"none", "grouped"}
]


def records(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Records with the fields of every objective; each text begins with the record's id."""
    draw = Random(first)
    made = []
    for i in range(first, first + count):
        words = [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(4)]
        turns = [{"role": "user", "content": f"id={i}; {words[0]}"}, {"role": "assistant", "content": words[1]}]
        turns += [{"role": "user", "content": words[2]}, {"role": "assistant", "content": words[3]}] * (i % 2)
        made.append(
            {
                "text": f"id={i}; {words[0]}",
                "pair": words[1],
                "label": ("no", "yes", "maybe")[i % 3],
                "number": i % 5,
                "prompt": f"id={i}; {words[2]}",
                "completion": words[3],
                "messages": turns,
            }
        )
    return made


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of BERT's kind."""
    return build_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of records."""
    path = tmp_path_factory.mktemp("records")
    for index, count in enumerate((30, 14, 25, 7)):
        write_records("jsonl", path / f"{index}.jsonl", records(count, first=100 * index))
    return path


@pytest.fixture(params=CASES, ids="-".join)
def config(
    request: pytest.FixtureRequest,
    folder: Path,
    bert: Path,
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
) -> StreamConfig:
    """A stream of several packing windows a lane."""
    objective, packing = request.param
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", 5)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 3)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    monkeypatch.setattr("streamfeed.lane.single.GROUP_ROWS", 10)
    monkeypatch.setattr("streamfeed.lane.single.ROWS_ALIKE", 3)
    monkeypatch.setattr("streamfeed.lane.sampling.SLICE_BYTES", 400)
    settings = OBJECTIVES[objective]
    return StreamConfig(
        [Source(str(folder))],
        tokenizer=str(bert) if isinstance(settings, Mlm | Classification) else tokenizer,
        seq_len=64,
        shuffle_buffer=24,
        lanes=4,
        objective=settings,
        **PACKINGS[packing],
    )


def test_a_resume_at_every_row_goes_on_to_the_bit(config: StreamConfig) -> None:
    whole = Run.start(config, 1, 1)
    reference = whole.take(32)[0]
    for done in range(30):
        rest = take(Run.start(config, 1, 1, state=whole.state(done)).loaders[0], 2)
        assert equal(rest, reference[done : done + 2]), done


def test_every_topology_gives_the_same_rows_also_across_a_resume(config: StreamConfig) -> None:
    reference = _rows(Run.start(config, 1, 6).take(10), 1)
    for ranks, workers, batch in ((2, 3, 3), (3, 1, 2), (5, 2, 1)):
        rows = _rows(Run.start(config, ranks, batch, workers).take(60 // (ranks * batch)), ranks)
        assert rows == {g: reference[g] for g in rows}, (ranks, workers)
    first = Run.start(config, 2, 3, 3)
    first.take(4)
    for ranks, batch in ((1, 2), (3, 1), (7, 2)):
        second = Run.start(config, ranks, batch, 2, state=first.state())
        rows = _rows(second.take(18 // (ranks * batch)), ranks, after=24)
        assert rows == {g: reference[g] for g in rows}, (ranks, batch)


def _rows(per_rank: list[Batches], ranks: int, after: int = 0) -> dict[int, dict[str, Any]]:
    """Return the rows by their number in the stream: every column, without what pads it to its batch's width."""
    found: dict[int, dict[str, Any]] = {}
    for rank, batches in enumerate(per_rank):
        number = max(0, -(-(after - rank) // ranks))
        for batch in batches:
            mask = batch.get("attention_mask", np.ones_like(batch["input_ids"]))
            for index in range(len(mask)):
                kept = mask[index] == 1
                found[number * ranks + rank] = {
                    name: column[index][kept].tolist() if column.ndim > 1 else int(column[index])
                    for name, column in batch.items()
                }
                number += 1
    return found


def test_the_columns_are_those_that_the_objective_promises(config: StreamConfig) -> None:
    batch = take(Run.start(replace(config, epochs=1), 1, 3).loaders[0], 1)[0]
    padded = config.packing == "none"
    expected = {"input_ids", "labels"} | ({"attention_mask"} if padded else set())
    if isinstance(config.objective, Classification):
        expected |= {"token_type_ids"}
    elif not (padded and isinstance(config.objective, Mlm)):
        expected |= {"position_ids"}
    assert batch.keys() == expected
    assert all(column.dtype == np.int64 for column in batch.values())
    if padded:
        assert batch["attention_mask"].sum(axis=1).max() == batch["input_ids"].shape[1]


def test_a_masked_row_is_masked_otherwise_in_the_next_epoch(folder: Path, bert: Path) -> None:
    """In listed order the second epoch of the one lane has the rows of the first."""
    config = StreamConfig(
        [Source(str(folder / "0.jsonl"))], str(bert), seq_len=64, shuffle_buffer=0, packing="none", objective=Mlm(0.3)
    )
    (batches,) = Run.start(config, 1, 30).take(2)
    first, second = batches
    whole = [np.where(batch["labels"] >= 0, batch["labels"], batch["input_ids"]) for batch in batches]
    assert (whole[0] == whole[1]).all()
    assert (first["labels"] != second["labels"]).any(axis=1).sum() > 25


def test_a_conversation_is_its_template_with_labels_on_what_the_assistant_said(
    folder: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    config = StreamConfig(
        [Source(str(folder / "1.jsonl"))],
        tokenizer,
        seq_len=512,
        shuffle_buffer=0,
        packing="none",
        objective=Chat(template=TEMPLATE),
    )
    (batches,) = Run.start(config, 1, 14).take(1)
    for index, record in enumerate(records(14, first=100)):
        length = int(batches[0]["attention_mask"][index].sum())
        ids, labels = batches[0]["input_ids"][index, :length].tolist(), batches[0]["labels"][index, :length].tolist()
        theirs = tokenizer.apply_chat_template(record["messages"], chat_template=TEMPLATE, return_dict=False)
        assert ids == theirs
        said = "".join(turn["content"] + EOS for turn in record["messages"] if turn["role"] == "assistant")
        assert tokenizer.decode([label for label in labels if label >= 0]) == said


def test_a_completion_alone_has_labels(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    config = StreamConfig(
        [Source(str(folder / "1.jsonl"))], tokenizer, seq_len=512, shuffle_buffer=0, packing="best_fit", epochs=1,
        objective=PromptCompletion(),
    )  # fmt: skip
    (batches,) = Run.start(config, 1, 2).take()
    said = [
        tokenizer.decode([label for label in row if label >= 0])
        for batch in batches
        for row in batch["labels"].tolist()
    ]
    expected = [record["completion"] + EOS for record in records(14, first=100)]
    assert sorted("".join(said).split(EOS)) == sorted("".join(expected).split(EOS))


def test_classes_and_pairs_are_those_of_the_tokenizer(folder: Path, bert: Path) -> None:
    from transformers import AutoTokenizer

    config = StreamConfig(
        [Source(str(folder / "1.jsonl"))], str(bert), seq_len=40, shuffle_buffer=0, packing="none", epochs=1,
        objective=Classification(text_pair="pair", names=("no", "yes", "maybe")),
    )  # fmt: skip
    loader = InProcessLoader(config, 14, pad_to_multiple_of=8, cache_dir=CACHE)
    (batch,) = take(loader)
    of = records(14, first=100)
    theirs = AutoTokenizer.from_pretrained(bert)(
        [record["text"] for record in of],
        [record["pair"] for record in of],
        truncation=True,
        max_length=40,
        padding=True,
        pad_to_multiple_of=8,
        return_tensors="np",
    )
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert (batch[name] == theirs[name]).all(), name
    assert batch["labels"].tolist() == [("no", "yes", "maybe").index(record["label"]) for record in of]
    assert loader.report().tally.truncated == sum(len(row) > 38 for row in _lengths(bert, of))


def _lengths(bert: Path, of: list[dict[str, Any]]) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bert)
    return [ids[2:] for ids in tokenizer([r["text"] for r in of], [r["pair"] for r in of])["input_ids"]]
