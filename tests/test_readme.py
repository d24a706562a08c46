"""The front door tells the truth: its code runs, its commands parse, and what it names is there."""

from __future__ import annotations

import ast
import copy
import importlib
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from streamfeed.cli.own_flags import take_own
from streamfeed.cli.trace_flags import asked_of
from streamfeed.train.flags import Arguments, parse
from tests.corpora import texts_with_ids, write_corpus, write_records
from tests.streams import CACHE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from streamfeed.train.config import RunConfig

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path for folder in ("", "streamfeed", "shards") for path in (ROOT / folder).glob("*.md"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder as the README's readers have it: a corpus and a tokenizer."""
    write_corpus("jsonl.zst", tmp_path / "corpus", texts_with_ids(600), shards=3)
    (tmp_path / "tokenizer").symlink_to(tokenizer_folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
    return tmp_path


@pytest.mark.processes
@pytest.mark.usefixtures("here")
def test_the_lines_of_python_run_and_the_resumed_loader_gives_the_next_row() -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def model(*, use_cache: bool, **batch: torch.Tensor) -> SimpleNamespace:
        assert not use_cache
        seen.append(batch)
        return SimpleNamespace(loss=torch.zeros(()))

    code = blocks("python")[0]
    names: dict[str, Any] = {"model": model}
    assert '"cuda"' in code
    device = "cuda" if torch.cuda.is_available() else "cpu"
    exec(compile(code.replace('"cuda"', f'"{device}"'), "README.md", "exec"), names)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert [batch["labels"].shape for batch in seen] == [(8, 128)] * 5
    with names["loader"] as loader, names["again"] as again:
        rows = next(iter(loader))
        following = [next(iter(again)) for _ in range(2)]
    for name in ("input_ids", "labels", "position_ids"):
        assert torch.equal(rows[name].cpu(), torch.cat([batch[name] for batch in following]))


@pytest.mark.usefixtures("here")
def test_the_lines_about_conversations_run(
    tokenizer: PreTrainedTokenizerBase, one_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_ROWS", 8)  # half a million tokens would be packed at a time
    monkeypatch.setattr("streamfeed.lane.best_fit.WINDOW_TOKENS", 0)
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    write_records("parquet", Path("sft/0.parquet"), [{"messages": turns}] * 40)
    spoken = copy.deepcopy(tokenizer)
    spoken.chat_template = "{% for turn in messages %}<{{ turn.role }}> {{ turn.content }}\n{% endfor %}"
    names: dict[str, Any] = {"tokenizer": spoken}
    exec(compile(blocks("python")[1], "README.md", "exec"), names)
    batch = next(iter(names["loader"]))
    assert batch["input_ids"].shape == (4, 4096)
    assert batch["cu_seqlens"][-1] == batch["input_ids"].numel()
    assert 0 < (batch["labels"] >= 0).float().mean() < 0.5


def test_what_the_recipes_import_is_there() -> None:
    code = ast.parse(blocks("python")[2])
    imported = [node for node in code.body if isinstance(node, ast.ImportFrom)]
    assert len(imported) == 2
    for node in imported:
        assert node.module is not None
        module = importlib.import_module(node.module)
        assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.usefixtures("here")
def test_the_lines_about_holding_out_run(one_engine: None) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("python")[3], "README.md", "exec"), names)
    batch, held = next(iter(names["training"])), list(names["held_out"])
    assert batch["input_ids"].shape == held[0]["input_ids"].shape == (8, 128)
    assert names["held_out"].report().tally.held_out > 340  # of 600


def settings_of(words: list[str]) -> RunConfig:
    return parse(Arguments.split(words))


def test_the_flags_of_the_main_job_are_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixture.yaml").write_text(blocks("yaml")[0])
    found = re.findall(r"python -m streamfeed\.train(.*?)(?: +#.*)?(?:$|`)", README.replace("\\\n", ""), re.MULTILINE)
    commands = [shlex.split(words) for words in found if words.strip()]
    assert len(commands) == 8
    for words in commands:
        settings_of(words)


def test_the_flags_of_inspect_are_flags() -> None:
    (words,) = re.findall(r"^streamfeed inspect (.*)$", README.replace("\\\n", ""), re.MULTILINE)
    own, _, rest = take_own(shlex.split(words), {"--rows": "4"}, ["--json"])
    assert own == {"--rows": "2"}
    settings_of(rest).check()


def test_the_flags_of_bench_are_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixture.yaml").write_text(blocks("yaml")[0])
    commands = re.findall(r"^streamfeed bench (.*?)(?: +#.*)?$", README, re.MULTILINE)
    assert len(commands) == 2
    for words in commands:
        own, _, rest = take_own(shlex.split(words), {"--workers": "", "--step-ms": ""})
        assert any(own.values())
        settings_of(rest).check()


def test_the_flags_of_trace_and_of_verifying_a_stream_are_flags() -> None:
    found = [asked_of(shlex.split(words)) for words in re.findall(r"^streamfeed trace (.*?) +#", README, re.MULTILINE)]
    assert [(one.first, one.last, one.find, rest) for one, rest in found] == [
        (1200, 1200, None, []),
        (1000, 1300, "lorem ipsum", []),
    ]
    (words,) = re.findall(r"^streamfeed verify (--config .*?) +#", README, re.MULTILINE)
    own, _, rest = take_own(shlex.split(words), {"--batches": "100"})
    assert (own, rest) == ({"--batches": "200"}, ["--config", "mixture.yaml"])


def test_the_yaml_is_a_config_of_the_main_job(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "mixture.yaml").write_text(text)
    config = settings_of(["--config", str(tmp_path / "mixture.yaml")])
    config.check()
    assert [source.weight for source in config.data.sources or []] == [0.7, 0.3]


def test_every_test_that_a_page_names_exists() -> None:
    named = {
        found for page in PAGES for found in re.findall(r"`(tests/\S+?)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert sorted(f"{path}::{name}" for path, name in named if name not in defined_in(ROOT / path)) == []


def defined_in(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.FunctionDef)}


def test_every_path_of_the_tree_exists() -> None:
    paths = list(tree(blocks("text")[-1]))
    assert len(paths) > 10
    assert [str(path) for path in paths if not (ROOT / path).exists()] == []


def test_every_part_of_the_package_is_in_the_tree() -> None:
    listed = {path.name for path in tree(blocks("text")[-1]) if path.parent.name == "streamfeed"}
    parts = {path.name for path in (ROOT / "streamfeed").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert listed == parts - {"__init__.py", "__pycache__"}


def tree(text: str) -> list[Path]:
    """Read an annotated tree: two spaces of indent a level, the name, then words about it."""
    found: list[Path] = []
    above: list[str] = []
    for line in text.splitlines():
        name = line.split()[0]
        level = (len(line) - len(line.lstrip())) // 2
        above[level:] = [name]
        found.append(Path(*above))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_links_to_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:streamfeed|scripts|shards|tests)/[\w./-]*)`", text)
    assert [name for name in named if name != "shards/demo/" and not (ROOT / name).exists()] == []
