"""The scripts and the pins that they install from."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SCRIPTS = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci" / "run"]


def pins() -> dict[str, str]:
    lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_direct_dependency_is_pinned_inside_its_own_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    known = pins()
    for requirement in wanted:
        assert known[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_torch_is_pinned_to_a_version_that_every_index_has() -> None:
    assert pins()["torch"] == "2.13.0", (
        "no local part such as +cpu: it installs as the usual build where there is a GPU"
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_sound_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.name == "install.sh" or os.access(script, os.X_OK)


def test_what_is_installed_already_is_not_installed_again_from_any_folder(tmp_path: Path) -> None:
    copy = tmp_path / "path with spaces"
    for name in ("pyproject.toml", "scripts/constraints.txt", "scripts/install.sh", "scripts/demo.sh"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    python = copy / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/usr/bin/env bash\nprintf "%s|" "$@" >>"$CALLS"; echo >>"$CALLS"\n')
    python.chmod(0o755)
    (python.parent / "pip").write_bytes(python.read_bytes())
    (python.parent / "pip").chmod(0o755)
    calls = tmp_path / "calls"

    def demo() -> list[str]:
        calls.write_text("")
        environment = {**os.environ, "CALLS": str(calls)}
        subprocess.run(["bash", str(copy / "scripts/demo.sh"), "--x", "a b"], check=True, cwd=tmp_path, env=environment)
        return calls.read_text().splitlines()

    job = "-m|streamfeed.train|--x|a b|"
    install, *rest = demo()
    assert install.startswith("-m|pip|install|")
    assert install.endswith(f"-c|{copy}/scripts/constraints.txt|-e|{copy}|")
    assert rest == [job]
    assert demo() == [job]
    with (copy / "scripts/constraints.txt").open("a") as file:
        file.write("more==1\n")
    assert len(demo()) == 2
