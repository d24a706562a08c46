from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.cli.main import main

if TYPE_CHECKING:
    import pytest


def test_a_wrong_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "no command trian; the nearest is train" in capsys.readouterr().err


def test_without_a_command_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "train" in capsys.readouterr().out


def test_train_gets_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data.sed", "1"]) == 2
    assert "the nearest is --data.seed" in capsys.readouterr().err
