from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from streamfeed.errors import ConfigError, StateError
from streamfeed.train.checkpoint import begin, finish, latest, open_checkpoint, prune, set_aside_after
from streamfeed.train.folders import RunFolder, find_resume, new_folder


def save(folder: Path, step: int, content: str = "weights") -> Path:
    temporary = begin(folder, step)
    (temporary / "deep").mkdir()
    (temporary / "model.bin").write_text(content)
    (temporary / "deep" / "state.json").write_text(json.dumps({"step": step}))
    return finish(temporary, step).path


def test_the_newest_complete_checkpoint_is_found(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") is None
    for step in (2, 100, 30):
        save(tmp_path, step)
    found = latest(tmp_path)
    assert found is not None
    assert (found.step, found.path.name) == (100, "step-000100")
    assert found.read("deep/state.json") == {"step": 100}


def test_a_checkpoint_is_invisible_until_it_is_whole(tmp_path: Path) -> None:
    save(tmp_path, 1)
    killed = begin(tmp_path, 2)
    (killed / "model.bin").write_text("half")
    found = latest(tmp_path)
    assert found is not None
    assert found.step == 1
    save(tmp_path, 3)
    assert not killed.exists(), "the next writer removes what a killed one left"


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "no manifest", "empty manifest"])
def test_a_broken_checkpoint_is_passed_over_with_a_warning(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1)
    broken = save(tmp_path, 2)
    if damage == "missing":
        (broken / "deep" / "state.json").unlink()
    elif damage == "cut":
        (broken / "model.bin").write_text("weig")
    elif damage == "changed":
        (broken / "model.bin").write_text("wEights")
    elif damage == "no manifest":
        (broken / "manifest.json").unlink()
    else:
        (broken / "manifest.json").write_text("")
    with caplog.at_level(logging.WARNING, "streamfeed"):
        found = latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert "step-000002" in caplog.text
    with pytest.raises(StateError, match="step-000002"):
        open_checkpoint(broken)


def test_a_run_whose_checkpoints_are_all_broken_does_not_start_over_by_itself(tmp_path: Path) -> None:
    (save(tmp_path, 1) / "model.bin").unlink()
    with pytest.raises(StateError, match="none of the 1 checkpoints"):
        latest(tmp_path)


def test_the_branch_that_a_resume_leaves_is_kept_but_not_found_again(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    moved = set_aside_after(tmp_path, 1)
    assert sorted(path.name for path in moved) == ["replaced-step-000002-1", "replaced-step-000003-1"]
    save(tmp_path, 2, "second branch")
    set_aside_after(tmp_path, 1)
    assert (tmp_path / "replaced-step-000002-2" / "model.bin").read_text() == "second branch"
    found = latest(tmp_path)
    assert found is not None
    assert found.step == 1


def test_the_same_step_saved_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    save(tmp_path, 1, "first")
    save(tmp_path, 1, "second")
    assert (tmp_path / "step-000001" / "model.bin").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_a_writer_killed_between_setting_aside_and_renaming_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 5, "first")
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path.name.startswith(".writing"):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 5, "second")
    assert not (tmp_path / "step-000005").exists()
    found = latest(tmp_path)
    assert found is not None
    assert (found.step, (found.path / "model.bin").read_text()) == (5, "second")


def test_a_used_run_folder_is_refused_and_a_failed_start_is_not(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert new_folder(str(run.path), "run") == run
    run.path.mkdir()
    run.config.write_text("data: {}")
    run.metrics.write_text("")
    assert new_folder(str(run.path), "run") == run, "nothing was trained there"
    run.metrics.write_text('{"step": 1}\n')
    with pytest.raises(ConfigError, match="not empty; add --resume latest"):
        new_folder(str(run.path), "run")


def test_resume_takes_latest_a_run_folder_or_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        run = RunFolder(Path("runs") / name)
        save(run.checkpoints, 1)
        save(run.checkpoints, 2)
        run.config.write_text("data: {}")
    shutil.copystat("runs/new", "runs/old")
    for resume, output, name, step in (
        ("latest", None, "new", 2),
        ("latest", "runs/old", "old", 2),
        ("runs/old", None, "old", 2),
        ("runs/old/checkpoints/step-000001", None, "old", 1),
    ):
        found = find_resume(resume, output)
        assert found.checkpoint is not None
        assert (found.run.path.name, found.checkpoint.step) == (name, step)


def test_resume_of_nothing_is_refused_but_of_a_run_killed_early_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no run under runs/"):
        find_resume("latest", None)
    with pytest.raises(ConfigError, match="neither a run folder nor a checkpoint"):
        find_resume("typo", None)
    assert find_resume("latest", "runs/young").checkpoint is None


def test_the_newest_are_kept_whatever_order_they_were_written_in(tmp_path: Path) -> None:
    for step in (2, 100, 30, 4):
        save(tmp_path, step)
    assert sorted(prune(tmp_path, 2)) == [2, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000030", "step-000100"]


def test_an_old_checkpoint_that_cannot_be_removed_is_warned_of_and_looks_like_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    with monkeypatch.context() as patch:

        def busy(path: Path, **_: object) -> None:
            raise OSError(16, "Device or resource busy", str(path))

        patch.setattr("streamfeed.train.checkpoint.shutil.rmtree", busy)
        assert prune(tmp_path, 1) == []
    assert "step-000001, cannot be removed: [Errno 16]" in caplog.text
    assert {path.name for path in tmp_path.iterdir()} == {".removing-step-000001", "step-000002"}
    save(tmp_path, 3)
    assert {path.name for path in tmp_path.iterdir()} == {"step-000002", "step-000003"}
