"""Hold-out: the part and the rest are all documents once, the part is always the same one, and both resume exactly."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import xxhash

from streamfeed import HoldOut, Map, Source, StreamConfig
from streamfeed.errors import ConfigError, EmptyStreamError, RecordError, StateError
from streamfeed.objectives import Chat, Classification, Lm, Objective, PromptCompletion
from tests import resuming
from tests.corpora import CURSOR_KINDS, KINDS, id_of, write_records, write_shard
from tests.streams import Run, corpus, documents, global_rows, stream, take
from tests.tokenizers_for_tests import build_bert

RANKS, WORKERS = (1, 2, 3), (0, 2)
SHARDS = [17, 9, 21, 12, 15, 8, 14, 11]

pytestmark = pytest.mark.usefixtures("one_engine")


def key_of(kind: str) -> str:
    """The hold-out by the id that is beside each text; lines have the text alone."""
    return "key:json.id" if kind.startswith("tar") else "key:text" if kind.startswith("lines") else "key:id"


def chosen(rule: HoldOut, kind: str, folder: Path, texts: list[str]) -> set[int]:
    """The ids that are held out by the definition: the hash of the text, the id, or the shard's name."""
    if rule.by == "text" or rule.by == "key:text":
        hashed = dict(enumerate(texts))
    elif rule.by == "shard":
        names = [path.name for path in sorted(folder.iterdir())]
        hashed = dict(enumerate(itertools.chain(*([name] * count for name, count in zip(names, SHARDS, strict=True)))))
    else:
        hashed = {i: str(i) for i in range(len(texts))}
    return {i for i, one in hashed.items() if xxhash.xxh3_64_intdigest(one.encode(), rule.seed) < rule.share * 2**64}


def ids_in(run: Run, tokenizer: Any, batches: int | None = None) -> Counter[int]:
    """The ids of all documents that a finite run hands out."""
    per_rank = run.take(batches)
    lanes = run.loaders[0].plan.lanes
    return Counter(id_of(text) for text in tokenizer.batch_decode(documents(per_rank, lanes, tokenizer.eos_token_id)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["text", "key", "shard"])
def test_part_and_rest_are_every_document_once_on_every_topology_and_in_every_order(
    by: str, kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    texts = corpus(tmp_path, kind, SHARDS)
    rules = (HoldOut(0.3, key_of(kind) if by == "key" else by, seed=seed) for seed in range(9))
    rule, part = next((one, ids) for one in rules if 15 < len(ids := chosen(one, kind, tmp_path, texts)) < 60)
    config = stream(tmp_path, kind, tokenizer, epochs=1, hold_out=rule)
    for seed, (ranks, workers) in enumerate(itertools.product(RANKS, WORKERS)):
        now = replace(config, seed=seed, lanes=(1, 6)[seed % 2])
        assert ids_in(Run.start(now, ranks, 2, workers), tokenizer) == Counter(set(range(len(texts))) - part)
        assert ids_in(Run.start(now.held_out(), ranks, 2, workers), tokenizer) == Counter(part)
    thrice = replace(config, epochs=3)
    assert ids_in(Run.start(thrice, 1, 2), tokenizer) == Counter(dict.fromkeys(set(range(len(texts))) - part, 3))


def test_every_format_holds_out_the_same_texts_and_keys(tmp_path: Path, tokenizer: Any) -> None:
    found: dict[str, list[Counter[int]]] = {"text": [], "key": []}
    for kind, by in itertools.product([kind for kind in KINDS if kind != "lines"], found):
        corpus(tmp_path / by / kind, kind, SHARDS)
        rule = HoldOut(0.3, key_of(kind) if by == "key" else by)
        config = stream(tmp_path / by / kind, kind, tokenizer, hold_out=rule)
        found[by].append(ids_in(Run.start(config.held_out(), 1, 2), tokenizer))
    assert all(one == some[0] for some in found.values() for one in some)
    assert found["text"][0] != found["key"][0]


def test_what_is_held_out_is_read_in_listed_order(tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, "parquet", SHARDS)
    rule = HoldOut(0.3)
    config = stream(tmp_path, "parquet", tokenizer, hold_out=rule).held_out()
    found = tokenizer.batch_decode(documents(Run.start(config, 1, 2).take(), 1, tokenizer.eos_token_id))
    assert found == [texts[i] for i in sorted(chosen(rule, "parquet", tmp_path, texts))]


check_every_batch = partial(resuming.check_every_batch, ahead=6, all_the_rest=9, at_least=10)


@pytest.mark.parametrize("kind", CURSOR_KINDS)
@pytest.mark.parametrize("by", ["text", "key", "shard"])
def test_training_resumes_exactly_at_every_batch(by: str, kind: str, tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, kind, SHARDS, words=20)
    rule = HoldOut(0.4, key_of(kind) if by == "key" else by)
    check_every_batch(stream(tmp_path, kind, tokenizer, lanes=3, shuffle_buffer=15, hold_out=rule), most=30)


@pytest.mark.parametrize("kind", CURSOR_KINDS)
def test_the_held_out_pass_resumes_exactly_at_every_batch(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, kind, SHARDS, words=20)
    config = stream(tmp_path, kind, tokenizer, hold_out=HoldOut(0.5, key_of(kind)), window_bytes=300)
    check_every_batch(config.held_out(), most=None)
    check_every_batch(replace(config, epochs=1, hold_out=HoldOut(0.5)).held_out(), most=None)


@pytest.mark.parametrize("by", ["text", "key:id", "shard"])
def test_every_topology_gives_the_same_rows_also_across_a_resume(by: str, tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "parquet", SHARDS, words=30)
    config = stream(tmp_path, "parquet", tokenizer, lanes=6, hold_out=HoldOut(0.4, by))
    reference = global_rows(Run.start(config, 1, 1).take(90))
    for ranks, workers in itertools.product((1, 2, 3, 4), (0, 3)):
        run = Run.start(config, ranks, 2, workers)
        rows = global_rows(run.take(5))
        assert rows == {g: reference[g] for g in range(10 * ranks)}
        for behind in (1, 3):
            state = run.state()
            resumed = global_rows(Run.start(config, behind, 2, 2, state).take(4), state["rows"])
            assert all(resumed[g] == reference[g] for g in resumed), (ranks, workers, behind)


def test_strides_read_each_record_of_their_part_once(tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, "csv", [90])
    for by in ("text", "key:id"):
        rule = HoldOut(0.4, by)
        part = chosen(rule, "csv", tmp_path, texts)
        config = stream(tmp_path, "csv", tokenizer, lanes=5, epochs=1, hold_out=rule)
        runs = [Run.start(one, 2, 2, 2) for one in (config, replace(config.held_out(), lanes=5))]
        assert ids_in(runs[0], tokenizer) == Counter(set(range(90)) - part)
        assert ids_in(runs[1], tokenizer) == Counter(part)


def test_what_is_left_to_the_other_part_is_counted_once_and_is_no_loss(tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, "jsonl", SHARDS)
    rule = HoldOut(0.3)
    part = chosen(rule, "jsonl", tmp_path, texts)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, hold_out=rule)
    for one, left in ((config, len(part)), (config.held_out(), len(texts) - len(part))):
        (loader,) = Run.start(one, 1, 2, 2).loaders
        take(loader)
        report = loader.report()
        assert (report.tally.records, report.tally.held_out) == (len(texts), left)
        assert report.remarks() == f"{left} left to the other part of the hold-out"
        assert "hold-out" not in report.summary()


def test_a_state_of_another_part_or_share_is_refused_and_one_without_a_hold_out_is_as_it_was(
    tmp_path: Path, tokenizer: Any
) -> None:
    corpus(tmp_path, "jsonl", SHARDS)
    plain = stream(tmp_path, "jsonl", tokenizer)
    run = Run.start(plain, 1, 2)
    run.take(2)
    state = run.state()
    assert "hold_out" not in state["fingerprint"]
    held = replace(plain, hold_out=HoldOut(0.3))
    with pytest.raises(StateError, match=r"hold_out: None in the state, {'share': 0\.3, 'by': 'text'"):
        Run.start(held, 1, 2, state=state).take(1)
    run = Run.start(held, 1, 2)
    run.take(2)
    for other, what in (
        (HoldOut(0.2), r"hold_out\.share: 0\.3 in the state, 0\.2 now"),
        (HoldOut(0.3, "key:id"), r"hold_out\.by: 'text' in the state, 'key:id' now"),
        (HoldOut(0.3, seed=1), r"hold_out\.seed: 0 in the state, 1 now"),
        (HoldOut(0.3, part="held_out"), r"hold_out\.part: 'training' in the state, 'held_out' now"),
    ):
        with pytest.raises(StateError, match=what):
            Run.start(replace(plain, hold_out=other), 1, 2, state=run.state()).take(1)


def test_a_part_without_a_document_is_an_error_that_says_where_they_are(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [20])
    config = stream(tmp_path, "jsonl", tokenizer, hold_out=HoldOut(1e-9))
    with pytest.raises(EmptyStreamError, match="20 records were read, 20 left to the other part of the hold-out"):
        Run.start(config.held_out(), 1, 2).take()
    rest = replace(config, lanes=1, hold_out=HoldOut(1 - 1e-9))
    with pytest.raises(EmptyStreamError, match="20 records were read in epoch 0, 20 left to the other part"):
        Run.start(rest, 1, 2).take(1)


def records(count: int) -> list[dict[str, Any]]:
    """Records that every objective reads, three of each page."""
    return [
        {
            "text": f"id={i}; " + "word " * (i % 7),
            "label": i % 2,
            "prompt": f"id={i}; ask",
            "completion": "answer " * (i % 5 + 1),
            "messages": [{"role": "user", "content": f"id={i}; ask"}, {"role": "assistant", "content": "answer"}],
            "page": f"https://pages.test/{i // 3}\n",
        }
        for i in range(count)
    ]


TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
OBJECTIVES: list[Objective] = [
    Lm(),
    PromptCompletion(),
    Chat(template=TEMPLATE, train_on="all"),
    Classification(classes=2),
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of BERT's kind."""
    return build_bert(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tar", "tar.gz", "csv", "arrow"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: type(one).__name__)
def test_every_objective_gets_the_records_of_its_part_without_the_key(
    objective: Objective, kind: str, tmp_path: Path, tokenizer: Any, bert: Path
) -> None:
    path = tmp_path / f"a.{kind}"
    write_records(kind, path, records(90), parts=2)
    config = StreamConfig(
        [Source(str(path))],
        tokenizer=str(bert) if isinstance(objective, Classification) else tokenizer,
        seq_len=64,
        packing="none",
        shuffle_buffer=0,
        epochs=1,
        objective=objective,
    )
    whole = samples_of(config)
    assert len(set(whole)) == len(whole) == 90
    pages = [f"https://pages.test/{i // 3}\n" for i in range(90)]
    for rule, hashed in (
        (HoldOut(0.4, "key:json.page" if kind.startswith("tar") else "key:page"), pages),
        (HoldOut(0.4, "key:__key__"), [f"{i:08}" for i in range(90)]),
        (HoldOut(0.4), None),
    ):
        if rule.by == "key:__key__" and not kind.startswith("tar"):
            continue
        rest, part = samples_of(replace(config, hold_out=rule)), samples_of(replace(config, hold_out=rule).held_out())
        assert min(len(rest), len(part)) > 10
        if hashed is None:
            assert sorted(rest + part) == sorted(whole)
        else:
            held = [xxhash.xxh3_64_intdigest(key.encode()) < 0.4 * 2**64 for key in hashed]
            assert part == list(itertools.compress(whole, held))
            assert rest == list(itertools.compress(whole, [not one for one in held]))


def samples_of(config: StreamConfig) -> list[tuple[int, ...]]:
    """The samples of a finite stream of a sample a row, in order."""
    (loader,) = Run.start(config, 1, 4).loaders
    rows = [row.tolist() for batch in take(loader) for row in batch["input_ids"]]
    spec = loader.tokenizer
    pad = spec.eos_id if spec.pad_id is None else spec.pad_id
    return [tuple(row) for one in rows if (row := list(itertools.takewhile(lambda token: token != pad, one)))]


def test_a_function_gets_the_records_that_are_held_out_without_it_too(tmp_path: Path, tokenizer: Any) -> None:
    texts = corpus(tmp_path, "jsonl", SHARDS)
    for rule in (HoldOut(0.3), HoldOut(0.3, "key:id")):
        part = chosen(rule, "jsonl", tmp_path, texts)
        source = Source(str(tmp_path), map=Map(only_text))
        config = stream(tmp_path, "jsonl", tokenizer, epochs=1, sources=[source], hold_out=rule)
        assert ids_in(Run.start(config, 1, 2), tokenizer) == Counter(set(range(len(texts))) - part)
        assert ids_in(Run.start(config.held_out(), 1, 2), tokenizer) == Counter(part)


def only_text(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record, which holds nothing but what the objective reads."""
    assert list(record) == ["text"]
    return record


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ({}, "no field 'url'"),
        ({"url": None}, "field 'url' is null, and records are held out by it: a text, or a whole number"),
        ({"url": ""}, "field 'url' is empty"),
        ({"url": 1.5}, "field 'url' is a number"),
        ({"url": True}, "field 'url' is a boolean"),
        ({"url": ["a"]}, "field 'url' is a list"),
    ],
)
def test_a_record_without_a_key_is_a_bad_record(
    key: dict[str, Any], cause: str, tmp_path: Path, tokenizer: Any
) -> None:
    path = tmp_path / "a.jsonl"
    good = [{"text": f"id={i};", "url": i} for i in range(40)]
    write_records("jsonl", path, [*good[:20], {"text": "id=999;", **key}, *good[20:]])
    config = stream(path, "jsonl", tokenizer, epochs=1, lanes=1, hold_out=HoldOut(0.3, "key:url"))
    with pytest.raises(RecordError, match=rf"a\.jsonl, byte \d+: .*{cause}"):
        Run.start(config, 1, 2).take()
    skipping = replace(config, on_error="skip")
    found: Counter[int] = Counter()
    for one in (skipping, skipping.held_out()):
        run = Run.start(one, 1, 2)
        found += ids_in(run, tokenizer)
        assert run.loaders[0].report().tally.skipped == 1
    assert found == Counter(range(40))


def test_by_shard_nothing_of_the_other_part_is_read(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", SHARDS)
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, hold_out=HoldOut(0.4, "shard"))
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    runs = [Run.start(one, 1, 2) for one in (config, config.held_out())]
    read = []
    for run in runs:
        run.take()
        (loader,) = run.loaders
        shards = loader.plan.sources[0].shards
        names = {Path(shards.url(i)).name for i in range(len(shards))}
        assert loader.report().bytes_read == sum(sizes[name] for name in names)
        assert loader.report().tally.held_out == 0
        read.append(names)
    assert read[0] | read[1] == set(sizes)
    assert not read[0] & read[1]


def test_a_mixture_holds_out_the_same_share_of_each_source(tmp_path: Path, tokenizer: Any) -> None:
    first = corpus(tmp_path / "a", "jsonl", SHARDS)
    write_shard("parquet", tmp_path / "b" / "x.parquet", [f"id={1000 + i};" for i in range(60)])
    config = stream(tmp_path, "jsonl", tokenizer, epochs=1, lanes=2, hold_out=HoldOut(0.3))
    config = replace(config, sources=[Source(str(tmp_path / "a")), Source(str(tmp_path / "b"), weight=3)])
    everything = Counter([*range(len(first)), *range(1000, 1060)])
    part = ids_in(Run.start(config.held_out(), 1, 2), tokenizer)
    assert ids_in(Run.start(config, 2, 2), tokenizer) + part == everything
    assert {one >= 1000 for one in part} == {True, False}
    with pytest.raises(ConfigError, match=r"b is a single shard, so that nothing of it can be held out by shard"):
        Run.start(replace(config, hold_out=HoldOut(0.3, "shard")), 1, 2)
