"""The shape of the package: imports go one way, and files stay small enough to read."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_LINES = 350


def contract(kind: str) -> dict[str, object]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = [one for one in config["tool"]["importlinter"]["contracts"] if one["type"] == kind]
    return dict(found)


def names(text: object) -> list[str]:
    assert isinstance(text, list)
    return [name.strip() for layer in text for name in str(layer).split("|")]


def test_imports_keep_the_contracts(tmp_path: Path) -> None:
    # A process of its own: import-linter configures logging, which disables every logger that there is already.
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", lint, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {
        f"streamfeed.{path.stem}" for path in (ROOT / "streamfeed").iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert parts - {"streamfeed.__init__", "streamfeed.__pycache__"} == set(names(contract("layers")["layers"]))


def test_all_layers_below_dataset_are_kept_from_torch() -> None:
    ordered = names(contract("layers")["layers"])
    below = ordered[ordered.index("streamfeed.dataset") + 1 :]
    assert set(names(contract("forbidden")["source_modules"])) == set(below)


@pytest.mark.parametrize("folder", ["streamfeed", "tests", "scripts"])
def test_no_file_is_too_long(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".sh"}]
    long = {str(path.relative_to(ROOT)): count for path in files if (count := lines(path)) > MOST_LINES}
    assert files
    assert long == {}


def lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_every_module_says_what_it_is_for() -> None:
    files = sorted((ROOT / "streamfeed").rglob("*.py"))
    silent = [str(path.relative_to(ROOT)) for path in files if ast.get_docstring(ast.parse(path.read_bytes())) is None]
    assert files
    assert silent == []
