"""A flat listing in several parts is whole or an error, and no two keys become one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from streamfeed.errors import SourceError
from streamfeed.stats import ReadStats
from streamfeed.storage.client import Entry, Limits
from streamfeed.storage.listing import resolve
from streamfeed.storage.retry import Retrier, RetryPolicy
from streamfeed.storage.tree import RemoteTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfeed.storage.edge import RemoteEdge


class PagedPort:
    """A store of flat keys that lists one a page; a page that is None is not found."""

    def __init__(self, keys: Sequence[str | None]) -> None:
        self._keys = keys

    def tree(self, path: str, stem: str, token: str, limits: Limits) -> tuple[list[Entry], str]:
        page = int(token or 0)
        key = self._keys[page]
        if key is None:
            raise FileNotFoundError
        return [Entry(f"{path}{key}", 3, key)], str(page + 1) if page + 1 < len(self._keys) else ""


class PagedEdge:
    """Asks the port of one folder."""

    def __init__(self, keys: Sequence[str | None]) -> None:
        self._port = PagedPort(keys)
        self._retrier = Retrier(RetryPolicy(), ReadStats(), sleep=lambda _: None)

    def ask(self, url: str, question: Callable[..., Any]) -> Any:
        path = url.removeprefix("s3://").rstrip("/")
        return self._retrier.call(lambda: question(self._port, path, Limits(1)), url, lambda: None)


def urls(keys: Sequence[str | None], uri: str) -> list[str]:
    return resolve([uri], RemoteTree(cast("RemoteEdge", PagedEdge(keys)))).urls


@pytest.mark.parametrize("uri", ["s3://b/d/", "s3://b/d/*", "s3://b/d/**/*.jsonl"])
class TestPages:
    def test_all_pages_are_listed(self, uri: str) -> None:
        assert urls(["/a.jsonl", "/b.jsonl", "/c.jsonl"], uri) == [f"s3://b/d/{name}.jsonl" for name in "abc"]

    def test_a_later_page_that_is_not_found_is_an_error_and_not_the_end(self, uri: str) -> None:
        with pytest.raises(SourceError, match=r"s3://b/d/: cannot be listed: it was removed while it was listed"):
            urls(["/a.jsonl", None], uri)

    def test_keys_that_differ_in_slashes_alone_are_different_files(self, uri: str) -> None:
        keys = ["/e//y.jsonl", "/e/y.jsonl", "/e///y.jsonl"]
        assert sorted(urls(keys, uri)) == sorted(f"s3://b/d{key}" for key in keys)

    def test_a_folder_without_a_name_is_an_error_and_never_taken_for_the_one_above(self, uri: str) -> None:
        with pytest.raises(SourceError, match=r"s3://b/d//x\.jsonl: is in a folder without a name"):
            urls(["/x.jsonl", "//x.jsonl"], uri)
