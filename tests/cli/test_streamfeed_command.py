from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from streamfeed.cli.command import told
from streamfeed.cli.main import main
from streamfeed.errors import ConfigError, ReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def test_a_wrong_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "no command trian; the nearest is train" in capsys.readouterr().err


def test_without_a_command_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "train" in capsys.readouterr().out


def test_train_gets_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data.sed", "1"]) == 2
    assert "the nearest is --data.seed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        (["shards"], "folder"),
        (["shards", "--workers", "2"], "folder"),
        (["--config", "run.yaml"], "stream"),
        (["--config=run.yaml", "--batches", "5"], "stream"),
        (["--data.uri", "x.jsonl", "--data.tokenizer", "gpt2"], "stream"),
    ],
)
def test_verify_takes_a_folder_or_the_settings_of_a_stream(
    words: list[str], taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Sequence[str]]] = []

    def asks(what: str) -> Callable[[Sequence[str]], int]:
        def command(argv: Sequence[str]) -> int:
            asked.append((what, argv))
            return 0

        return command

    monkeypatch.setattr("streamfeed.cli.shards.verify", asks("folder"))
    monkeypatch.setattr("streamfeed.cli.verify_stream.main", asks("stream"))
    assert main(["verify", *words]) == 0
    assert asked == [(taken, words)]


@pytest.mark.parametrize("command", ["inspect", "trace", "bench", "convert", "index", "verify"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):  # which argparse raises
        assert main([command, "--help"]) == 0
    assert f"usage: streamfeed {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("no such flag"), 2, "error: no such flag"),
        (ReadError("a.jsonl", "byte 7", "the store failed"), 1, "error: a.jsonl, byte 7: the store failed"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_ends_a_command_is_told_and_shows_in_its_status(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        raise error

    assert told(run) == code
    assert said in capsys.readouterr().err
