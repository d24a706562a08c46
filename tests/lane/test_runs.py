"""Runs: special tokens around every document, exactly once, and texts encoded in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from streamfeed.encode.engines import build_engine
from streamfeed.encode.proof import Verdict
from streamfeed.encode.tokenizer import load_tokenizer
from streamfeed.errors import EmptyStreamError, ReplayError
from streamfeed.lane.runs import runs
from streamfeed.lane.state import Place, SourceState
from tests.corpora import write_corpus
from tests.lanes import SILENT, ByteEngine, lane_of, plan_of, rows_of, sampler, window_reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfeed.encode.protocol import Encoded


def tokenizer_that_adds(template: str) -> PreTrainedTokenizerFast:
    """Bytes as tokens, ``<s>`` and ``</s>`` as control strings, and the tokenizer's own post-processor."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, pair=None, special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


TEXTS = [
    "plain",
    "</s>",
    "ends with </s>",
    "</s> begins",
    "<s>",
    "<s> begins",
    "<s></s>",
    "ends with <s>",
    "a</s></s>b",
]


@pytest.mark.parametrize("engine_name", ["huggingface", "fastokens"])
@pytest.mark.parametrize(
    ("template", "begins"), [("$A", False), ("$A </s>", False), ("<s> $A", True), ("<s> $A </s>", True)]
)
def test_special_tokens_are_added_once_whatever_the_tokenizer_adds_and_the_text_holds(
    template: str, begins: bool, engine_name: str
) -> None:
    spec = load_tokenizer(tokenizer_that_adds(template))
    assert (spec.bos_id, spec.eos_id) == (0 if begins else None, 1)
    verdict = Verdict("huggingface" if engine_name == "huggingface" else "fastokens", "for this test")
    encoded = build_engine(spec, verdict).encode(TEXTS)
    bounds = encoded.offsets.tolist()
    for text, start, stop in zip(TEXTS, bounds[:-1], bounds[1:], strict=True):
        document = encoded.ids[start:stop].tolist()
        assert document.count(1) == 1
        assert document[-1] == 1
        assert document.count(0) == (1 if begins else 0)
        assert len(document) == len(text.encode()) + 1 + begins, "a control string in a text is text"


class Recording(ByteEngine):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.calls.append(len(texts))
        return super().encode(texts)


def test_a_resume_encodes_nothing_before_the_document_it_stands_in(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, [f"text {i}" for i in range(20)])
    plan = plan_of(tmp_path, shuffle_buffer=20)
    reader = window_reader(plan)
    window = next(reader.windows(Place()))
    engine = Recording()
    state = SourceState(document=15, digest=window.digest, tokens=100)
    found = list(runs(reader, sampler(engine=engine), state, source=0, lane=0, offset=3))
    assert engine.calls == [5]
    assert found[0].first == 15
    assert found[0].offsets[0] == -3
    assert bytes(found[0].ids[:3].tolist()).decode() == window.texts[15][3:6]


def test_texts_that_changed_under_a_state_are_a_replay_error(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, ["one", "two", "three"])
    plan = plan_of(tmp_path, epochs=1)
    digest = next(window_reader(plan).windows(Place())).digest
    state = SourceState(document=1, digest=digest, tokens=4)
    path = next(tmp_path.iterdir())
    for content in (path.read_bytes().replace(b"two", b"owt"), b" " * path.stat().st_size):
        path.write_bytes(content)
        with pytest.raises(ReplayError, match="unit 0 of epoch 0, record 0"):
            list(runs(window_reader(plan), sampler(), state, source=0, lane=0, offset=0))


@pytest.mark.parametrize("folders", [1, 2])
def test_a_lane_whose_documents_all_hold_no_token_says_so_and_does_not_spin(folders: int, tmp_path: Path) -> None:
    for index in range(folders):
        write_corpus("jsonl", tmp_path / str(index), [f"{SILENT}{i}" for i in range(5)])
    lane = lane_of(plan_of(*(tmp_path / str(index) for index in range(folders))))
    with pytest.raises(EmptyStreamError, match="not one token of the 5 documents that lane 0 read in epoch 0: 5 empty"):
        lane.next_block()
    finite = lane_of(plan_of(*(tmp_path / str(index) for index in range(folders)), epochs=2))
    assert list(rows_of(finite)) == []
    assert finite.end_state().tally.empty == 10 * folders


def test_a_few_documents_without_tokens_are_dropped_and_counted(tmp_path: Path) -> None:
    write_corpus("jsonl", tmp_path, ["ab", SILENT, "cd", SILENT])
    lane = lane_of(plan_of(tmp_path, epochs=1, seq_len=4))
    tokens = [token for row, _, _ in rows_of(lane) for token in row]
    assert sorted(bytes(tokens[i : i + 2]) for i in (0, 3)) == [b"ab", b"cd"]
    assert len(tokens) == 6
    assert (lane.end_state().tally.empty, lane.end_state().tally.records) == (2, 4)
