"""``streamfeed verify --config``: good data pass, and what breaks the promise is named."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.cli.relay import Leg, Relay
from streamfeed.cli.verify_stream import main, verify_stream
from streamfeed.formats.plain import PlainLines
from streamfeed.train.flags import Arguments, parse
from tests.corpora import texts_with_ids, write_corpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfeed.train.config import RunConfig

SMALL = ((2, 0), (1, 0), (3, 0), (5, 0))


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch, one_engine: None) -> None:
    """Ranks without workers, and windows of a few documents."""
    monkeypatch.setattr("streamfeed.cli.relay._TOPOLOGIES", SMALL)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_DOCUMENTS", 7)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 3)
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    monkeypatch.setattr("streamfeed.lane.single.GROUP_ROWS", 10)


def corpus(folder: Path, kind: str = "jsonl") -> list[Path]:
    return write_corpus(kind, folder / "data", [text or "" for text in texts_with_ids(120, words=20)], shards=3)


def words_for(folder: Path, tokenizer: Path, *more: str) -> list[str]:
    settings = ["--data.seq_len=32", "--data.shuffle_buffer=24", "--data.lanes=4", "--loader.batch_size=3"]
    return [f"--data.uri={folder / 'data'}", f"--data.tokenizer={tokenizer}", *settings, *more]


def config_for(folder: Path, tokenizer: Path, *more: str) -> RunConfig:
    return parse(Arguments.split(words_for(folder, tokenizer, *more)))


@pytest.mark.usefixtures("_in_process")
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--data.packing=best_fit"],
        ["--data.packing=none", "--data.group_by_length=true"],
        ["--data.epochs=1"],
        ["--data.epochs=1", "--data.packing=none", "--loader.pad_to_multiple_of=8"],
        ["--data.objective=classification", "--data.packing=none", "--data.classification.classes=200"],
    ],
    ids=lambda flags: "-".join(flag.rpartition(".")[2] for flag in flags) or "concat",
)
@pytest.mark.parametrize("seed", [0, 1])
def test_good_data_pass(flags: list[str], seed: int, tmp_path: Path, tokenizer_folder: Path) -> None:
    corpus(tmp_path)
    if "--data.objective=classification" in flags:
        flags = [*flags, "--data.classification.label=id"]
    said: list[str] = []
    config = config_for(tmp_path, tokenizer_folder, *flags)
    verdict = verify_stream(config, 24 if config.data.epochs is None else 1000, seed=seed, say=said.append)
    assert verdict.fault is None
    assert verdict.hashes > 0
    assert len(verdict.legs) == len(said) - 1 == len(SMALL)
    assert all(line.endswith(": equal") for line in said[1:])
    assert [leg.first for leg in verdict.legs[1:]] == [leg.stop for leg in verdict.legs[:-1]]
    assert verdict.legs[-1].stop == verdict.rows


@pytest.mark.processes
def test_good_data_pass_with_worker_processes(
    tmp_path: Path, tokenizer_folder: Path, one_engine: None, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus(tmp_path)
    (tmp_path / "config.yaml").write_text("data: {packing: concat}\n")
    words = [f"--config={tmp_path / 'config.yaml'}", "--batches", "12", *words_for(tmp_path, tokenizer_folder)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "36 rows of 4 lane(s) read on 1 rank without workers" in said
    assert "2 rank(s) with 2 worker(s) each, from row " in said
    assert "The stream keeps its promise: 36 rows and " in said


def unsteady(monkeypatch: pytest.MonkeyPatch, mark: str, changed: Callable[[int, str], str]) -> None:
    """Let readers of lines return the text that begins with ``mark`` otherwise each time."""
    plain, times = PlainLines._values, iter(range(1 << 30))

    def values(self: PlainLines, lines: list[bytes], offset: int) -> Any:
        found = plain(self, lines, offset)
        return [
            changed(next(times), text) if isinstance(text, str) and text.startswith(mark) else text for text in found
        ]

    monkeypatch.setattr(PlainLines, "_values", values)


@pytest.mark.usefixtures("_in_process")
@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("packing", ["concat", "best_fit", "none"])
def test_a_reader_that_is_not_deterministic_is_found_by_shard_and_record(
    packing: str,
    longer: bool,
    tmp_path: Path,
    tokenizer_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = corpus(tmp_path)
    unsteady(monkeypatch, "id=57;", lambda time, text: f"{text} {'more ' * time if longer else chr(65 + time % 26)}")
    words = words_for(tmp_path, tokenizer_folder, f"--data.packing={packing}")
    assert main([*words, "--batches=40", "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["ok"] is False
    assert (verdict["fault"]["shard"], verdict["fault"]["record"]) == (str(paths[1]), 17)
    assert main([*words, "--batches=40"]) == 1
    said = capsys.readouterr().out
    assert "does NOT keep its promise: row " in said
    assert f"{paths[1]}, record 17 (epoch 0)" in said


@pytest.mark.usefixtures("_in_process")
@pytest.mark.parametrize("touched", [False, True])
def test_a_shard_that_is_changed_meanwhile_is_named(touched: bool, tmp_path: Path, tokenizer_folder: Path) -> None:
    paths = corpus(tmp_path)

    def change(_: str) -> None:
        data, before = paths[2].read_bytes(), paths[2].stat()
        paths[2].write_bytes(data.replace(b"id=97;", b"id=79;"))
        if not touched:
            os.utime(paths[2], ns=(before.st_atime_ns, before.st_mtime_ns))

    verdict = verify_stream(config_for(tmp_path, tokenizer_folder), 60, say=change)
    assert verdict.fault is not None
    assert str(paths[2]) in verdict.fault.words()
    if not touched:
        assert (verdict.fault.shard, verdict.fault.record) == (str(paths[2]), 17)


@pytest.mark.usefixtures("_in_process")
def test_a_first_reading_that_fails_names_the_shard(
    tmp_path: Path, tokenizer_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = corpus(tmp_path)
    paths[1].write_bytes(paths[1].read_bytes() + b"no json\n")
    assert main([*words_for(tmp_path, tokenizer_folder, "--data.shuffle_buffer=0"), "--batches", "60"]) == 1
    assert f"error: {paths[1]}, byte " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batches", "0"], "--batches takes a whole number of at least 1"),
        (["--seed=x"], "--seed takes a whole number of at least 0"),
        (["--data.sed", "1"], "the nearest is --data.seed"),
        ([], "no data is named"),
    ],
)
def test_settings_that_cannot_work_exit_with_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert main(["--help"]) == 0


@pytest.mark.usefixtures("_in_process")
def test_a_hash_in_a_later_state_that_is_another_is_a_fault(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(tmp_path)
    plain = Relay._read

    def read(self: Relay, leg: Leg, state: dict[str, Any]) -> Any:
        behind, rows = plain(self, leg, state)
        for lane in behind["lanes"].values():
            lane["chain"] = f"{int(lane['chain'], 16) ^ 1:016x}"
        return behind, rows

    monkeypatch.setattr(Relay, "_read", read)
    verdict = verify_stream(config_for(tmp_path, tokenizer_folder), 24)
    assert verdict.fault is not None
    assert "the hash of the first " in verdict.fault.words()
