"""What URIs mean: paths, folders, globs, braces, and what is passed over."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from streamfeed.errors import SourceError
from streamfeed.storage.listing import resolve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "corpus"
    files = {
        "a/x-0.jsonl": 3, "a/x-1.jsonl": 4, "a/x-2.jsonl": 5, "b/deep/x-3.jsonl": 6, "top.parquet": 7,
        "_SUCCESS": 0, ".hidden.jsonl": 1, "a/.part.crc": 1, "a/x-0.jsonl.crc": 1, "README.md": 9, "LICENSE": 9,
        "index.json": 9, "manifest.json": 9, "shard.tar.idx": 9, "_logs/deep/x.jsonl": 9, ".git/config": 9,
    }  # fmt: skip
    for name, size in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)
    return root


def test_a_folder_is_everything_below_it_sorted_without_hidden_and_marker_files(corpus: Path) -> None:
    listing = resolve([str(corpus)])
    assert listing.names == ["a/x-0.jsonl", "a/x-1.jsonl", "a/x-2.jsonl", "b/deep/x-3.jsonl", "top.parquet"]
    assert listing.sizes == [3, 4, 5, 6, 7]
    assert listing.urls == [str(corpus / name) for name in listing.names]
    assert listing.ignored == 11
    assert resolve([f"{corpus}/"]) == listing
    assert resolve([corpus.as_uri()]) == listing


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a/*.jsonl", ["x-0.jsonl", "x-1.jsonl", "x-2.jsonl"]),
        ("a/x-[01].jsonl", ["x-0.jsonl", "x-1.jsonl"]),
        ("a/x-?.jsonl", ["x-0.jsonl", "x-1.jsonl", "x-2.jsonl"]),
        ("**/*.jsonl", ["a/x-0.jsonl", "a/x-1.jsonl", "a/x-2.jsonl", "b/deep/x-3.jsonl"]),
        ("*/deep/*", ["b/deep/x-3.jsonl"]),
        ("b/**", ["deep/x-3.jsonl"]),
        ("b/*", ["deep/x-3.jsonl"]),
        ("**/**/x-3*", ["b/deep/x-3.jsonl"]),
        ("a/x-{2..0}.jsonl", ["x-2.jsonl", "x-1.jsonl", "x-0.jsonl"]),
        ("{b,a}/**/*.jsonl", ["b/deep/x-3.jsonl", "a/x-0.jsonl", "a/x-1.jsonl", "a/x-2.jsonl"]),
        ("{b,a}", ["b/deep/x-3.jsonl", "a/x-0.jsonl", "a/x-1.jsonl", "a/x-2.jsonl"]),
        (".hid*", [".hidden.jsonl"]),
    ],
)
def test_patterns(corpus: Path, pattern: str, names: list[str]) -> None:
    assert resolve([f"{corpus}/{pattern}"]).names == names


def test_a_pattern_works_from_the_working_folder(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus / "a")
    assert resolve(["*.jsonl"]).urls == [str(corpus / f"a/x-{i}.jsonl") for i in range(3)]
    assert resolve(["x-1.jsonl"]).urls == [str(corpus / "a/x-1.jsonl")]
    assert resolve(["../b/*/*.jsonl"]).urls == [str(corpus / "b/deep/x-3.jsonl")]


def test_a_named_file_is_taken_at_its_word_whatever_its_name(corpus: Path) -> None:
    listing = resolve([str(corpus / ".hidden.jsonl"), str(corpus / "README.md"), str(corpus / "a" / "x-0.jsonl")])
    assert listing.names == [".hidden.jsonl", "README.md", "a/x-0.jsonl"]
    assert listing.ignored == 0
    assert resolve([str(corpus / "a" / "x-0.jsonl")]).names == ["x-0.jsonl"]


def test_a_path_that_exists_wins_over_its_meaning_as_a_pattern(tmp_path: Path) -> None:
    for name in ("x[0].jsonl", "x0.jsonl", "{a,b}.jsonl", "a.jsonl"):
        (tmp_path / name).write_bytes(b"x")
    assert resolve([f"{tmp_path}/x[0].jsonl"]).names == ["x[0].jsonl"]
    assert resolve([f"{tmp_path}/{{a,b}}.jsonl"]).names == ["{a,b}.jsonl"]


@pytest.mark.parametrize(
    "uris", [["."], ["**/*.jsonl"], ["a/*.jsonl", "b", "top.parquet"], ["a/x-0.jsonl", "b/deep/x-3.jsonl"]]
)
def test_moving_the_corpus_changes_no_name(corpus: Path, tmp_path: Path, uris: list[str]) -> None:
    before = resolve([f"{corpus}/{uri}" for uri in uris])
    moved = tmp_path / "else" / "where"
    shutil.move(corpus, moved)
    after = resolve([f"{moved}/{uri}" for uri in uris])
    assert after.names == before.names
    assert after.sizes == before.sizes
    assert after.urls != before.urls


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("nothing.jsonl", "no such file or folder"),
        ("nothing/*.jsonl", "cannot be listed"),
        ("a/*.parquet", "matches no file"),
        ("*.md", "only hidden or marker files (1 passed over)"),
        ("*{_SUCCESS,.idx}", "passed over"),
        ("a/x-{0..5}.jsonl", "x-3.jsonl, and there is no such file"),
        ("a/x-{0.jsonl", "unbalanced"),
        ("empty", "holds no file"),
    ],
)
def test_what_means_nothing_is_an_error_that_says_so(corpus: Path, pattern: str, message: str) -> None:
    (corpus / "empty").mkdir()
    with pytest.raises(SourceError, match=re.escape(message)):
        resolve([f"{corpus}/{pattern}"])


def test_the_same_file_twice_is_an_error(corpus: Path) -> None:
    with pytest.raises(SourceError, match=r"x-1\.jsonl is meant twice"):
        resolve([f"{corpus}/a/*.jsonl", f"{corpus}/b/../a/x-1.jsonl"])


def test_remote_stores_are_refused_without_their_secrets() -> None:
    with pytest.raises(SourceError, match="no path of this machine") as caught:
        resolve(["https://user:pass@host/x.jsonl?X-Amz-Signature=abc"])
    assert "pass" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_links_are_followed_and_their_loops_and_loose_ends_are_errors(corpus: Path) -> None:
    (corpus / "b" / "link").symlink_to(corpus / "a")
    assert "link/x-0.jsonl" in resolve([f"{corpus}/b"]).names
    (corpus / "a" / "back").symlink_to(corpus / "a")
    with pytest.raises(SourceError, match="leads back"):
        resolve([str(corpus / "a")])
    (corpus / "a" / "back").unlink()
    (corpus / "a" / "loose.jsonl").symlink_to(corpus / "gone.jsonl")
    with pytest.raises(SourceError, match=r"loose\.jsonl"):
        resolve([str(corpus / "a")])


@pytest.mark.skipif(os.geteuid() == 0, reason="root lists every folder")
def test_a_folder_that_cannot_be_listed_is_an_error(corpus: Path) -> None:
    (corpus / "b").chmod(0)
    with pytest.raises(SourceError, match="cannot be listed"):
        resolve([str(corpus)])
    (corpus / "b").chmod(0o700)


def test_a_folder_of_many_files_is_listed_with_one_stat_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(300):
        (tmp_path / f"{i:04}.jsonl").touch()
    calls: list[object] = []
    original = os.stat

    def recorded(path: str, **options: bool) -> os.stat_result:
        calls.append(path)
        return original(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", recorded)
        assert len(resolve([str(tmp_path)]).urls) == 300
    assert len(calls) == 1
