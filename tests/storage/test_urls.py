"""Secrets never reach a message."""

from __future__ import annotations

import pytest

from streamfeed.storage.urls import Place, is_remote, name_of, place_of


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("/data/x y?.jsonl", ("", "/data/x y?.jsonl", "")),
        ("s3://bucket/a b#?x%20.jsonl", ("s3://", "bucket/a b#?x%20.jsonl", "")),
        ("https://host/a/x.jsonl?sig=1&u=http://b/#part", ("https://host", "/a/x.jsonl", "?sig=1&u=http://b/#part")),
        ("https://host", ("https://host", "", "")),
        ("https://host/a#b", ("https://host", "/a", "#b")),
        ("zip://x.jsonl::s3://bucket/a.zip", ("zip://", "x.jsonl", "::s3://bucket/a.zip")),
        ("zip://::memory://a.zip", ("zip://", "", "::memory://a.zip")),
        ("simplecache::s3://bucket/x", ("simplecache::s3://", "bucket/x", "")),
        ("simplecache::https://h/x?y", ("simplecache::https://h", "/x", "?y")),
    ],
)
def test_a_url_is_taken_apart_and_put_together_again(url: str, place: tuple[str, str, str]) -> None:
    assert place_of(url) == Place(*place)
    assert place_of(url).url == url


@pytest.mark.parametrize(
    ("uri", "remote"),
    [
        ("s3://b/x", True),
        ("HTTPS://h/x", True),
        ("simplecache::s3://b/x", True),
        ("zip://a::memory://x.zip", True),
        ("abfs+x://b", True),
        ("file:///data/x", False),
        ("/data/x", False),
        ("data/a::b", False),
        ("C:/data", False),
        ("./s3://x", False),
        ("a b://x", False),
    ],
)
def test_what_is_remote(uri: str, remote: bool) -> None:
    assert is_remote(uri) is remote


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/data/x.jsonl", "x.jsonl"),
        ("s3://b/a/x?1.jsonl.gz", "x?1.jsonl.gz"),
        ("https://h/a/x.parquet?sig=a/b.tar", "x.parquet"),
        ("zip://a/x.tar::s3://b/y.zip", "x.tar"),
    ],
)
def test_the_name_is_that_of_the_file_and_not_of_its_query_or_archive(url: str, name: str) -> None:
    assert name_of(url) == name
