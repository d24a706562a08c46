"""Provenance: the records that a batch names, read again and encoded, give its rows."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed import HoldOut, Source, StreamLoader, merge_states
from streamfeed.dataset.origins import Ledgers, PieceOrigin, RowOrigins, Telling, Told
from streamfeed.lane.lane import Lane
from streamfeed.lane.origins import RECORD
from streamfeed.lane.state import LaneState
from streamfeed.objectives import Map
from tests.corpora import KINDS, write_corpus
from tests.lanes import EOS, SILENT, block_rows, plan_of, tools_for
from tests.streams import CACHE, InProcessLoader, corpus, stream
from tests.tracing import Shards, check_row, encoder, numbered_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator

    from streamfeed import StreamConfig
    from streamfeed.config import Packing
    from streamfeed.loader.provenance import RecordOrigin, TracedBatch

pytestmark = pytest.mark.usefixtures("one_engine")

PACKINGS: dict[str, dict[str, Any]] = {
    "concat": {},
    "best_fit": {"packing": "best_fit"},
    "none": {"packing": "none"},
    "grouped": {"packing": "none", "group_by_length": True},
}


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a few documents, so that a small corpus has many of them, and slices that cut them."""
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", 7)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 3)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    monkeypatch.setattr("streamfeed.lane.single.GROUP_ROWS", 10)
    monkeypatch.setattr("streamfeed.lane.single.ROWS_ALIKE", 3)
    monkeypatch.setattr("streamfeed.lane.mapping.MAP_SLICE", 3)
    monkeypatch.setattr("streamfeed.lane.sampling.SLICE_BYTES", 400)


EOS_ID = 0


def traced(config: StreamConfig, batch_size: int = 3, **options: Any) -> InProcessLoader:
    return InProcessLoader(config, batch_size, cache_dir=CACHE, provenance=True, **options)


def take_traced(loader: InProcessLoader, most: int | None = None) -> list[TracedBatch]:
    return list(islice(iter(loader), most))  # type: ignore[arg-type]


def check(
    config: StreamConfig, batches: list[TracedBatch], plan: Any, sample: Any = lambda texts, _: texts[0]
) -> set[str]:
    """Check every row; return the texts that were seen."""
    shards, encode, seen = Shards(plan), encoder(config.tokenizer), set()
    for ids, pieces in numbered_rows(batches).values():
        tokens = check_row(ids, pieces, shards, encode, sample)
        assert tokens == len(ids) or set(ids[tokens:]) == {EOS_ID}
        seen |= {shards.text(record) for piece in pieces for record in piece.records}
    return seen


def records_of(batches: list[TracedBatch]) -> list[RecordOrigin]:
    return [record for batch in batches for row in batch.provenance for piece in row for record in piece.records]


@pytest.mark.parametrize("kind", KINDS)
def test_the_records_of_every_row_are_those_of_its_tokens_in_any_format(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    texts = corpus(tmp_path, kind, [20, 13, 16], words=16)
    config = stream(tmp_path, kind, tokenizer, lanes=3, shuffle_buffer=15, epochs=2)
    loader = traced(config, workers=2)
    batches = take_traced(loader)
    assert check(config, batches, loader.plan) == {text for text in texts if text}
    assert {record.epoch for record in records_of(batches)} == {0, 1}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("workers", [0, 2])
def test_mixtures_know_their_records_in_every_packing(
    packing: str, workers: int, tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path / "a", "parquet", [20, 14], words=40)
    corpus(tmp_path / "b", "jsonl.zst", [9], words=10)
    corpus(tmp_path / "c", "tar", [7, 3], words=150)
    sources = [
        Source(str(tmp_path / "a"), weight=3),
        Source(str(tmp_path / "b"), weight=1),
        Source(str(tmp_path / "c"), text="json.text", weight=0.5),
    ]
    config = replace(stream(tmp_path, "parquet", tokenizer, lanes=3), sources=sources, epochs=2, **PACKINGS[packing])
    loader = traced(config, workers=workers)
    assert len(check(config, take_traced(loader), loader.plan)) == 53


def doubled(record: dict[str, Any], draw: Generator) -> list[dict[str, Any]]:
    count = int(draw.integers(0, 5))
    return [{"text": f"{record['text']} copy {copy}"} for copy in range(min(count, 3))]


def paired(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    texts = [record["text"] for record in records]
    return [{"text": " + ".join(texts[i : i + 2])} for i in range(0, len(texts), 2)]


def of_doubled(texts: list[str], number: int) -> str:
    import orjson

    return f"{orjson.loads(texts[0])['text']} copy {number}"


def of_paired(texts: list[str], number: int) -> str:
    import orjson

    return " + ".join(orjson.loads(text)["text"] for text in texts[2 * number : 2 * number + 2])


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("mapped", "sample"), [(Map(doubled), of_doubled), (Map(paired, batched=True), of_paired)])
@pytest.mark.parametrize("mixed", [False, True])
def test_samples_of_map_functions_know_their_records(
    packing: str, mapped: Map, sample: Any, mixed: bool, tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path, "jsonl", [40, 25], words=30)
    source = Source(str(tmp_path), map=mapped)
    sources = [source, replace(source, weight=0.5)] if mixed else [source]
    config = stream(tmp_path, "jsonl", tokenizer, sources=sources, epochs=1, lanes=2, **PACKINGS[packing])
    loader = traced(config)
    batches = take_traced(loader)
    check(config, batches, loader.plan, sample)
    most = max(len(piece.records) for batch in batches for row in batch.provenance for piece in row)
    assert most == (3 if mapped.batched else 1)


def test_byte_ranges_and_strides_know_their_records(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path / "ranges", "jsonl", [500], words=250)
    config = stream(tmp_path / "ranges", "jsonl", tokenizer, seq_len=512, epochs=1, shuffle_buffer=100)
    loader = traced(config)
    batches = take_traced(loader)
    assert len(check(config, batches, loader.plan)) == 500
    assert len({record.start for record in records_of(batches)}) == 4
    corpus(tmp_path / "strides", "jsonl.gz", [50], words=10)
    config = stream(tmp_path / "strides", "jsonl.gz", tokenizer, epochs=1)
    loader = traced(config)
    assert loader.plan.sources[0].units.step.tolist() == [4] * 4
    assert len(check(config, take_traced(loader), loader.plan)) == 50


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_held_out_shifts_no_record(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, kind, [60, 41], words=16)
    config = stream(tmp_path, kind, tokenizer, epochs=1, hold_out=HoldOut(0.4))
    sides = []
    for side in (config, config.held_out()):
        loader = traced(side)
        sides.append(check(side, take_traced(loader), loader.plan))
    assert sides[0] | sides[1] == set(texts)
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_topology_and_every_resume_names_the_same_records(packing: str, tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "parquet", [40, 25, 31, 8], words=30)
    config = stream(tmp_path, "parquet", tokenizer, **PACKINGS[packing])
    reference = {g: pieces for g, (_, pieces) in numbered_rows(take_traced(traced(config, 6), 20)).items()}
    assert sorted(reference) == list(range(120))
    first = [traced(config, 2, workers=2, rank=rank, world_size=3) for rank in range(3)]
    for loader in first:
        for number, (_, pieces) in numbered_rows(take_traced(loader, 7)).items():
            assert pieces == reference[number]
    state = merge_states([loader.state_dict() for loader in first])
    for rank in range(5):
        second = traced(config, 1, workers=1, rank=rank, world_size=5)
        second.load_state_dict(state)
        found = numbered_rows(take_traced(second, 9))
        assert min(found) >= 42
        for number, (_, pieces) in found.items():
            assert [_bare(piece) for piece in pieces] == [_bare(piece) for piece in reference[number]]


@pytest.mark.processes
def test_worker_processes_tell_the_same(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "parquet", [40, 25, 31, 8], words=30)
    config = stream(tmp_path, "parquet", tokenizer, epochs=1)  # workers know nothing of small packing windows
    expected = numbered_rows(take_traced(traced(config, 5)))
    with StreamLoader(config, 5, num_workers=2, cache_dir=CACHE, provenance=True) as loader:
        assert numbered_rows(cast("list[TracedBatch]", list(loader))) == expected


def _bare(piece: Any) -> Any:
    """Return a piece without cursors: a resumed reader may name the same place by another one."""
    return replace(piece, records=tuple(replace(record, seek=0, skip=0) for record in piece.records))


def test_without_being_asked_nothing_is_remembered_and_a_model_gets_nothing_more(
    tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path, "jsonl", [40])
    config = stream(tmp_path, "jsonl", tokenizer)
    plain = next(iter(InProcessLoader(config, 4, cache_dir=CACHE)))
    assert type(plain) is dict
    batch = next(iter(traced(config, 4)))
    assert batch.keys() == plain.keys()
    assert all(np.array_equal(batch[name], plain[name]) for name in plain)


def test_rows_of_lanes_that_have_ended_have_no_pieces(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [3, 1], words=3)
    config = stream(tmp_path, "jsonl", tokenizer, lanes=2, epochs=1)
    (batch,) = take_traced(traced(config, 8))
    lengths = [sum(piece.end - piece.begin for piece in row) for row in batch.provenance]
    assert [bool(length) for length in lengths] == [bool((row >= 0).any()) for row in batch["labels"]]
    assert batch.provenance.to_json()[7] == {"row": 7, "pieces": []}


TEXTS = st.lists(st.sampled_from(["a", "bb", "a longer text", "x" * 50, SILENT, "", None]), min_size=1, max_size=9)


def byte_ids(text: str) -> list[int]:
    return [] if text.startswith(SILENT) else [*text.encode(), EOS]


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from([*PACKINGS]), st.data())
def test_any_rows_of_any_blocks_are_cut_where_their_samples_begin(
    corpora: list[list[str | None]], packing: str, data: st.DataObject
) -> None:
    name: Packing = PACKINGS[packing].get("packing", "concat")
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / str(source) for source in range(len(corpora))]
        for source, texts in zip(folders, corpora, strict=True):
            write_corpus("jsonl", source, texts)
        plan = plan_of(
            *folders,
            weights=[data.draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in folders],
            seq_len=data.draw(st.integers(2, 20)),
            shuffle_buffer=data.draw(st.integers(0, 12)),
            epochs=2,
            packing=name,
            group_by_length=packing == "grouped",
        )
        expected = {(s, r): byte_ids(text) for s, texts in enumerate(corpora) for r, text in enumerate(texts) if text}
        tools = replace(tools_for(plan), remember=True)
        lane = Lane(plan, 0, LaneState.start(len(folders), 0), tools)
        telling, ledgers = Telling([lane]), Ledgers()
        before: tuple[RowOrigins, dict[int, list[int]]] | None = None
        for block in _blocks(lane):
            rows = range(data.draw(st.integers(0, len(block) - 1)), len(block), data.draw(st.integers(1, 3)))
            telling.take(0, block, rows, range(1, 2 * len(rows), 2))
            _, told = Told.split(telling.told().behind(b"states"))
            now = ledgers.read(told), {2 * i + 1: block_rows(block)[row] for i, row in enumerate(rows)}
            for origins, ids in (now, before or now):
                assert {row: _ids_of(origins.pieces(row), expected) for row in ids} == ids
                assert origins.pieces(0) == []
            before = now


def _ids_of(pieces: list[PieceOrigin], expected: dict[tuple[int, int], list[int]]) -> list[int]:
    found: list[int] = []
    for piece in pieces:
        assert piece.begin == len(found)
        (values,) = piece.records
        record = dict(zip(RECORD, values, strict=True))
        found += expected[record["source"], record["record"]][piece.token : piece.token + piece.end - piece.begin]
    return found


def _blocks(lane: Any) -> Iterator[Any]:
    while (block := lane.next_block()) is not None:
        yield block
