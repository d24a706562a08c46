"""hf:// addresses: repository, revision, path."""

from __future__ import annotations

import pytest

from streamfeed.errors import SourceError
from streamfeed.storage.hub.address import HubAddress


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("hf://datasets/org/name", ("org/name", None, "")),
        ("hf://datasets/org/name/", ("org/name", None, "")),
        ("hf://datasets/org/name@v1.0", ("org/name", "v1.0", "")),
        ("hf://datasets/org/na.me-x_1@main/a/b.parquet", ("org/na.me-x_1", "main", "a/b.parquet")),
        ("hf://datasets/org/name@feature%2Fnew/a", ("org/name", "feature/new", "a")),
        ("hf://datasets/org/name@refs/pr/12/a b.jsonl", ("org/name", "refs/pr/12", "a b.jsonl")),
        ("hf://datasets/org/name@refs/convert/parquet", ("org/name", "refs/convert/parquet", "")),
        ("hf://datasets/org/name/50%25 #1?.jsonl", ("org/name", None, "50%25 #1?.jsonl")),
        ("hf://datasets/org/name/a@b.jsonl", ("org/name", None, "a@b.jsonl")),
    ],
)
def test_an_address_has_a_repository_a_revision_and_a_path(uri: str, parts: tuple[str, str | None, str]) -> None:
    address = HubAddress.parse(uri)
    assert (address.repo, address.revision, address.path) == parts
    assert HubAddress.parse(address.url) == address


@pytest.mark.parametrize(
    "uri",
    [
        "hf://datasets/",
        "hf://datasets/name",
        "hf://datasets/org/",
        "hf://datasets//name",
        "hf://datasets/org/name@/a",
        "hf://datasets/o rg/name",
        "s3://datasets/org/name",
    ],
)
def test_anything_else_is_refused_with_the_form_it_should_have(uri: str) -> None:
    with pytest.raises(SourceError, match="hf://datasets/org/name"):
        HubAddress.parse(uri)
