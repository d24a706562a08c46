"""Every packing, with and without a user's function: exact on any topology and across a resume at every batch."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import Source
from streamfeed.objectives import Map
from tests.corpora import id_of
from tests.streams import Batches, Run, corpus, documents, equal, global_rows, stream, take

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator
    from transformers import PreTrainedTokenizerBase

    from streamfeed import StreamConfig

pytestmark = pytest.mark.usefixtures("one_engine")

SHARDS = (40, 25, 31, 8)
EOS = 0
PACKINGS: dict[str, dict[str, Any]] = {
    "concat": {},
    "best_fit": {"packing": "best_fit"},
    "none": {"packing": "none"},
    "grouped": {"packing": "none", "group_by_length": True},
}


def doubled(record: dict[str, Any], draw: Generator) -> list[dict[str, Any]]:
    """Drop a fifth of the records, and return others once, twice or three times."""
    count = int(draw.integers(0, 5))
    text = record["text"]
    return [{"text": f"{text} copy {copy}"} for copy in range(min(count, 3))]


def paired(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbours: a batched function that returns fewer than it got."""
    texts = [record["text"] for record in records]
    return [{"text": " + ".join(texts[i : i + 2])} for i in range(0, len(texts), 2)]


MAPS: dict[str, Map | None] = {"as read": None, "mapped": Map(doubled), "batched": Map(paired, batched=True)}


@pytest.fixture(params=[(packing, mapped) for packing in PACKINGS for mapped in MAPS], ids="-".join)
def config(
    request: pytest.FixtureRequest, tmp_path: Path, small_windows: None, tokenizer: PreTrainedTokenizerBase
) -> StreamConfig:
    """A stream of several packing windows a lane."""
    packing, mapped = request.param
    corpus(tmp_path, "jsonl", SHARDS, words=30)
    return stream(tmp_path, "jsonl", tokenizer, sources=[Source(str(tmp_path), map=MAPS[mapped])], **PACKINGS[packing])


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a few documents, so that a small corpus has many of them, and slices that cut them."""
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", 7)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 3)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    monkeypatch.setattr("streamfeed.lane.single.GROUP_ROWS", 10)
    monkeypatch.setattr("streamfeed.lane.single.ROWS_ALIKE", 3)
    monkeypatch.setattr("streamfeed.objectives.MAP_SLICE", 3)
    monkeypatch.setattr("streamfeed.lane.mapping.MAP_SLICE", 3)
    monkeypatch.setattr("streamfeed.lane.sampling.SLICE_BYTES", 400)


@pytest.mark.parametrize("epochs", [None, 1])
def test_a_resume_at_every_batch_goes_on_to_the_bit(config: StreamConfig, epochs: int | None) -> None:
    config = replace(config, epochs=epochs)
    whole = Run.start(config, 1, 3)
    reference = whole.take(None if epochs else 60)[0]
    for done in range(0, len(reference) + 1, 3):
        rest = take(Run.start(config, 1, 3, state=whole.state(done)).loaders[0], 8)
        expected = reference[done : done + 8]
        assert equal(rest[: len(expected)], expected), done
    again = Run.start(config, 1, 3, state=whole.state(5))
    again.take(4)
    third = Run.start(config, 1, 3, state=again.state())
    assert equal(third.take(4)[0], reference[9:13])


def test_every_topology_gives_the_same_rows_also_across_a_resume(config: StreamConfig) -> None:
    rows = {}
    for ranks, workers, batch in ((1, 0, 6), (2, 3, 3), (3, 1, 2), (5, 2, 1)):
        rows[ranks] = Run.start(config, ranks, batch, workers).take(60 // (ranks * batch))
    padded = config.packing == "none"
    reference = {g: _bare(row, padded) for g, row in global_rows(rows[1]).items()}
    for ranks, per_rank in rows.items():
        for g, row in global_rows(per_rank).items():
            assert _bare(row, padded) == reference[g], (ranks, g)
    first = Run.start(config, 2, 3, 3)
    first.take(4)
    for ranks, batch in ((1, 2), (3, 1), (7, 2)):
        second = Run.start(config, ranks, batch, 2, state=first.state())
        for g, row in global_rows(second.take(18 // (ranks * batch)), after=24).items():
            assert _bare(row, padded) == reference[g], (ranks, g)


def _bare(row: tuple[int, ...], padded: bool) -> tuple[int, ...]:
    """Return a row without what pads it, whose width is a matter of the batch (and without its EOS, the pad here)."""
    end = len(row)
    while padded and end and row[end - 1] == EOS:
        end -= 1
    return row[:end]


def test_an_epoch_gives_every_document_once_and_counts_what_the_function_drops(config: StreamConfig) -> None:
    run = Run.start(replace(config, epochs=1, seq_len=256), 2, 2, 1)
    texts = [config.tokenizer.decode(tokens) for tokens in _documents(run.take(), config.packing)]
    dropped = sum(loader.report().tally.mapped_out for loader in run.loaders)
    mapped = config.sources[0].mapping
    if mapped is None:
        assert sorted(map(id_of, texts)) == list(range(sum(SHARDS)))
        assert dropped == 0
        return
    if mapped.batched:
        assert sorted(id_of(part) for text in texts for part in text.split(" + ")) == list(range(sum(SHARDS)))
        assert dropped == sum(SHARDS) - len(texts)
        return
    copies: dict[int, set[int]] = {}
    for text in texts:
        copies.setdefault(id_of(text), set()).add(int(text.rpartition(" copy ")[2]))
    assert all(some == set(range(len(some))) for some in copies.values())
    assert len(texts) == sum(map(len, copies.values()))
    assert {len(some) for some in copies.values()} == {1, 2, 3}
    assert dropped == sum(SHARDS) - len(copies) > 0


def _documents(per_rank: list[Batches], packing: str) -> list[list[int]]:
    """Return the documents, without EOS; but for ``concat``, each is one piece of one row."""
    if packing == "concat":
        return documents(per_rank, 4, EOS)
    pieces: list[list[int]] = []
    for batch in (batch for batches in per_rank for batch in batches):
        for ids, positions in zip(batch["input_ids"].tolist(), batch["position_ids"].tolist(), strict=True):
            begins = [column for column, position in enumerate(positions) if position == 0]
            pieces += [ids[begin:end] for begin, end in itertools.pairwise([*begins, len(ids)])]
    return [[token for token in piece if token != EOS] for piece in pieces if any(piece)]
