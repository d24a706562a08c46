"""``streamfeed trace``: what it says of a step is what training was given in it, and nothing had to be logged."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from rich.console import Console

from streamfeed.cli.main import main
from streamfeed.cli.search import Search
from streamfeed.cli.shown_trace import show
from streamfeed.cli.trace import Traced, trace
from streamfeed.cli.trace_flags import Asked
from streamfeed.errors import ConfigError, StateError
from streamfeed.lane import lane
from streamfeed.loader.provenance import Piece
from streamfeed.train.flags import Arguments, parse
from tests.corpora import texts_with_ids, write_corpus
from tests.runs import FakeRun

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from streamfeed.train.config import RunConfig

pytestmark = pytest.mark.usefixtures("one_engine")

PACKINGS: dict[str, list[str]] = {
    "concat": [],
    "best_fit": ["--data.packing=best_fit"],
    "none": ["--data.packing=none", "--data.group_by_length=true"],
}


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", 7)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 3)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    monkeypatch.setattr("streamfeed.lane.single.GROUP_ROWS", 10)


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, list[str]]:
    """The texts of every shard, by its name, of two sources in two formats."""
    found: dict[str, list[str]] = {}
    for name, kind, first in (("a", "parquet", 0), ("b", "jsonl.gz", 1000)):
        some = [text or "" for text in texts_with_ids(70, first=first, words=25)]
        paths = write_corpus(kind, tmp_path / name, some, shards=2)
        found |= {str(path): some[35 * i : 35 * i + 35] for i, path in enumerate(paths)}
    return found


def config_for(folder: Path, tokenizer: Path, *more: str) -> RunConfig:
    sources = [{"uri": str(folder / "a"), "weight": 2.0}, {"uri": str(folder / "b"), "weight": 1.0}]
    data = {"sources": sources, "tokenizer": str(tokenizer), "seq_len": 32, "shuffle_buffer": 24, "lanes": 4}
    (folder / "settings.yaml").write_text(yaml.safe_dump({"data": data, "loader": {"batch_size": 1}}))
    return parse(Arguments.split(["--config", str(folder / "settings.yaml"), *more]))


def check_steps(run: FakeRun, texts: dict[str, list[str]], tokenizer: Any) -> None:
    """Check every step of ``run`` against what its ranks were given."""
    last = max(run.steps)
    traced = list(trace(Asked(run.path, 1, last)))
    assert [one.step for one in traced] == list(range(1, last + 1))
    for one in traced:
        given = run.steps[one.step]
        numbers = [row["row"] for row in one.rows]
        assert numbers == sorted(given)[: len(numbers)], "what pads the last batch need not be there"
        assert len(numbers) == len(given) or one.step == last
        for row in one.rows:
            assert row["rank"] == run.owners[row["row"]]
            ids = given[row["row"]]
            for piece in row["pieces"]:
                begin, end = piece["columns"]
                assert piece["text"] == tokenizer.decode(ids[begin:end])
                (record,) = piece["records"]
                whole = [*tokenizer(texts[record["shard"]][record["record"]])["input_ids"], tokenizer.eos_token_id]
                assert ids[begin:end] == whole[slice(*piece["tokens"])]


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_step_is_what_training_was_given_before_and_after_elastic_resumes(
    packing: str,
    tmp_path: Path,
    tokenizer_folder: Path,
    texts: dict[str, list[str]],
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    config = config_for(tmp_path, tokenizer_folder, *PACKINGS[packing])
    run = FakeRun(tmp_path / "run", config, batch=6)
    run.train(7, ranks=2, every=3).train(5, ranks=3, skip=6).train(4, ranks=1, skip=2, every=2)
    check_steps(run, texts, tokenizer)


def test_a_finite_run_is_traced_to_its_last_rows(
    tmp_path: Path, tokenizer_folder: Path, texts: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase
) -> None:
    run = FakeRun(tmp_path / "run", config_for(tmp_path, tokenizer_folder, "--data.epochs=1"), batch=4)
    run.train(9, ranks=2, every=4)
    check_steps(run, texts, tokenizer)
    with pytest.raises(ConfigError, match="the data end in step"):
        list(trace(Asked(run.path, 1, 100_000)))
    run.train(100_000, ranks=1)
    check_steps(run, texts, tokenizer)
    with pytest.raises(ConfigError, match=f"ended with step {run.position.step}"):
        list(trace(Asked(run.path, 1, 100_000)))


def test_only_the_lanes_that_a_step_needs_are_read(
    tmp_path: Path, tokenizer_folder: Path, texts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert texts
    run = FakeRun(tmp_path / "run", config_for(tmp_path, tokenizer_folder), batch=2).train(5, ranks=1)
    made: list[int] = []
    plain = lane.Lane.__init__

    def init(self: Any, plan: Any, number: int, *rest: Any, **more: Any) -> None:
        made.append(number)
        plain(self, plan, number, *rest, **more)

    monkeypatch.setattr(lane.Lane, "__init__", init)
    (step,) = trace(Asked(run.path, 4, 4))
    assert {row["lane"] for row in step.rows} == {2, 3} == set(made)


def test_a_rank_is_asked_for_alone(tmp_path: Path, tokenizer_folder: Path, texts: dict[str, list[str]]) -> None:
    assert texts
    run = FakeRun(tmp_path / "run", config_for(tmp_path, tokenizer_folder), batch=6).train(4, ranks=3)
    (step,) = trace(Asked(run.path, 3, 3, rank=1))
    assert [row["row"] for row in step.rows] == [number for number in sorted(run.steps[3]) if number % 3 == 1]
    assert {row["rank"] for row in step.rows} == {1}
    with pytest.raises(ConfigError, match=r"no rank 3: steps 1 to 2 had 3 rank"):
        list(trace(Asked(run.path, 1, 2, rank=3)))
    with pytest.raises(ConfigError, match="do not say on how many ranks"):
        list(trace(Asked(run.path, 5, 5, rank=0)))
    (step,) = trace(Asked(run.path, 5, 5, rank=0, ranks=2))
    assert [row["row"] for row in step.rows] == [24, 26, 28]


def test_a_text_is_found_in_the_steps_that_were_given_it(
    tmp_path: Path, tokenizer_folder: Path, texts: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase
) -> None:
    run = FakeRun(tmp_path / "run", config_for(tmp_path, tokenizer_folder), batch=4).train(12, ranks=2, every=5)
    given = {number: ids for rows in run.steps.values() for number, ids in rows.items()}
    lanes = ["".join(tokenizer.decode(given[g]) for g in sorted(given) if g % 4 == lane) for lane in range(4)]
    names = [f"id={number};" for number in (*range(70), *range(1000, 1070))]
    counts = {name: sum(lane.count(name) for lane in lanes) for name in names}
    cut = [name for name in names if counts[name] > sum(tokenizer.decode(ids).count(name) for ids in given.values())]
    assert cut, "a text is cut between two rows"
    for name in [*cut[:2], *[name for name in names if counts[name] and name not in cut][:2]]:
        found = list(trace(Asked(run.path, 1, 12, find=name)))
        rows = [(row["row"], piece) for step in found for row in step.rows for piece in row["pieces"]]
        assert len(rows) == counts[name]
        for number, piece in rows:
            assert number in given
            (record,) = piece["records"]
            assert texts[record["shard"]][record["record"]].startswith(name)
    absent = next(name for name in names if not counts[name])
    assert list(trace(Asked(run.path, 1, 12, find=absent))) == []


@pytest.mark.parametrize("kind", ["jsonl", "tar", "parquet", "jsonl.zst"])
def test_byte_ranges_are_told_by_their_byte_and_records_are_read_again(
    kind: str, tmp_path: Path, tokenizer_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [text or "" for text in texts_with_ids(900, words=200)]
    (path,) = write_corpus(kind, tmp_path / "a", some, parts=8)
    config = config_for(tmp_path, tokenizer_folder, f"--data.sources=[{{uri: {path}}}]")
    FakeRun(tmp_path / "run", config, batch=4).train(3, ranks=1)
    assert main(["trace", str(tmp_path / "run"), "--steps", "1:3", "--json", "--records"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [row for step in found["steps"] for row in step["rows"]]
    records = [record for row in rows for piece in row["pieces"] for record in piece["records"]]
    assert {record["value"] for record in records} <= set(some)
    data = path.read_bytes()
    if kind == "jsonl.zst":
        assert all((record["unit"], record["byte"]) == (None, None) for record in records)
        assert all(record["value"] == some[record["record"]] for record in records)
        return
    assert len({tuple(record["unit"]) for record in records}) > 1
    for record in records:
        if kind == "jsonl":
            line = json.loads(data[record["byte"] : data.index(b"\n", record["byte"])])
            assert line["text"] == record["value"] == some[line["id"]]
        elif kind == "tar":
            assert data[record["byte"] :].startswith(f"{some.index(record['value']):08}.txt".encode())
        else:
            assert record["byte"] is None


def test_people_see_where_each_piece_comes_from(
    tmp_path: Path, tokenizer_folder: Path, texts: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert texts
    FakeRun(tmp_path / "run", config_for(tmp_path, tokenizer_folder), batch=2).train(2, ranks=1)
    assert main(["trace", str(tmp_path / "run"), "--step", "2", "--data.retry.attempts", "3"]) == 0
    said = capsys.readouterr().out
    assert "step 2: rows from 2 to 3 of the stream (made again from the beginning)" in said
    assert "row 2 (lane 2, rank 0): 32 tokens" in said
    assert "part-00000.parquet, record " in said
    assert ", epoch 0, tokens 0 to " in said
    assert main(["trace", str(tmp_path / "run"), "--step", "2", "--find", "no such text"]) == 1
    assert "no piece of steps 2 to 2 has this text" in capsys.readouterr().err


def test_long_texts_and_many_records_are_shown_in_short() -> None:
    record = {"shard": "a", "unit": [0, 9], "record": 3, "byte": None, "epoch": 1, "value": "x\ny"}
    piece = {"columns": [0, 4], "tokens": [5, 9], "sample": 1, "text": "ab" * 400 + "\x1b", "records": [record] * 6}
    row = {"row": 7, "lane": 1, "rank": None, "tokens": 4, "pieces": [piece]}
    console = Console(width=400, force_terminal=False, soft_wrap=True)
    with console.capture() as captured:
        show(Traced(3, [row], 6, "there"), "ab", console)
    said = captured.get()
    assert "a, record 3 of part 0-9, epoch 1; " in said
    assert "and 2 more records, sample 1, tokens 5 to 8" in said
    assert "x\\ny" in said


def test_steps_whose_place_nobody_knows_are_refused_and_later_ones_traced(
    tmp_path: Path, tokenizer_folder: Path, texts: dict[str, list[str]]
) -> None:
    assert texts
    config = config_for(tmp_path, tokenizer_folder, "--train.keep_checkpoints=1")
    run = FakeRun(tmp_path / "run", config, batch=2).train(2, ranks=1, skip=4).train(2, ranks=1)
    shutil.rmtree(run.path / "checkpoints" / "step-000002")
    with pytest.raises(StateError, match="4 rows were stepped over, and the checkpoints that could say where are gone"):
        list(trace(Asked(run.path, 3, 3)))
    (step,) = trace(Asked(run.path, 5, 5))
    assert step.first_row == 12


def test_what_a_text_is_cut_into_comes_in_any_order() -> None:
    def decode(ids: Any) -> str:
        return "".join(map(chr, ids))

    whole = [ord(char) for char in "one two three four"]
    cuts = [(0, 5), (5, 9), (9, 18)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        search, found = Search("two three", decode), []
        for index in order:
            begin, end = cuts[index]
            found.append(search.has(Piece(0, end - begin, begin, 0, ()), whole[begin:end]))
        assert sum(found) <= 1
    search = Search("wo th", decode)
    assert [search.has(Piece(0, e - b, b, 0, ()), whole[b:e]) for b, e in cuts] == [False, False, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the run folder first"),
        (["nowhere", "--step", "1"], "nowhere is no run folder"),
        (["run"], "give --step N, or --steps A:B"),
        (["run", "--step", "1", "--steps", "1:2"], "give --step N, or --steps A:B"),
        (["run", "--step", "0"], "--step takes a whole number of at least 1"),
        (["run", "--steps", "4:2"], "--steps 4:2 is empty"),
        (["run", "--step", "1", "--rank", "2", "--ranks", "2"], "there is no rank 2 of 2"),
        (["run", "--step", "1", "--find"], "--find needs a value"),
        (["run", "--step", "1", "--find="], "--find takes the text"),
    ],
)
def test_words_that_cannot_work_exit_with_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *words]) == 2
    assert message in capsys.readouterr().err


def test_help_names_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--help"]) == 0
    assert "--steps A:B" in capsys.readouterr().out
